"""GPU lookup by common names and driver names."""

from __future__ import annotations

import pytest

from kernelrl_core.errors import MissingPrerequisite, UsageError
from kernelrl_core.prompts.hardware import GPUS, find_gpu, hardware_block


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
def test_gpu_name_is_resolved(name, found):
    assert find_gpu(name).name == found


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_every_gpu_is_found_by_its_name_and_has_a_block(gpu):
    assert find_gpu(gpu.name) is gpu
    facts = dict(hardware_block(gpu.name).facts)
    assert {"Architecture", "Memory"} <= facts.keys()
    assert all("None" not in value for value in facts.values())


def test_unknown_gpu_suggests_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'H200'"):
        find_gpu("H201")


def test_auto_reads_the_driver(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU-1, NVIDIA L40S, 8.9, 550.54'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert hardware_block("auto").name == "L40S"


def test_auto_without_a_gpu_reports_the_fix(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPrerequisite, match="gpu=H100"):
        hardware_block("auto")
