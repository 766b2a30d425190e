"""GPU lookup by common names and driver names."""

from __future__ import annotations

import pytest

from kernelrl_devices.data_sheets import GPUS, Gpu, find_gpu


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("H100", "H100 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB"),
        ("a100", "A100 80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx4090", "RTX 4090"),
        ("Tesla T4", "T4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA H200", "H200"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_gpu_name_is_resolved(name: str, found: str) -> None:
    gpu = find_gpu(name)
    assert gpu is not None
    assert gpu.name == found


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_every_gpu_is_found_by_its_name(gpu: Gpu) -> None:
    assert find_gpu(gpu.name) is gpu


def test_an_unknown_gpu_is_not_found() -> None:
    assert find_gpu("H201") is None
