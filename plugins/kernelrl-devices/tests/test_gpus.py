"""The GPUs of this machine, from a substitute of `nvidia-smi`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelrl_devices import gpus
from kernelrl_devices.gpus import InstalledGpu, nvidia_gpus, used_memory_share, visible_gpus

FIRST = InstalledGpu("GPU-aa", "NVIDIA H200", "9.0", "550.54", 143771)
SECOND = InstalledGpu("GPU-bb", "NVIDIA L40S", "8.9", "550.54", 46068)


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    rows = [f"{gpu.id}, {gpu.model}, {gpu.arch}, {gpu.driver}, {gpu.memory_mib}" for gpu in (FIRST, SECOND)]
    program.write_text(f"#!/bin/sh\nprintf '{rows[0]}\\n{rows[1]}\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(gpus, "gpu_vendors", lambda: frozenset({"nvidia"}))
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("two_gpus")
def test_all_gpus_are_visible_without_a_variable() -> None:
    assert nvidia_gpus() == visible_gpus() == (FIRST, SECOND)


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("given", "models"),
    [("", []), ("1", ["NVIDIA L40S"]), ("GPU-bb,GPU-a", ["NVIDIA L40S", "NVIDIA H200"]), ("0,-1,1", ["NVIDIA H200"])],
)
def test_the_variable_selects_gpus_by_index_or_uuid(
    monkeypatch: pytest.MonkeyPatch, given: str, models: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert [gpu.model for gpu in visible_gpus()] == models


@pytest.mark.usefixtures("two_gpus")
def test_a_gpu_that_the_driver_does_not_list_has_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert visible_gpus() == (InstalledGpu("7"),)


@pytest.mark.usefixtures("two_gpus")
def test_variables_make_no_gpu_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(gpus, "gpu_vendors", lambda: frozenset())
    assert visible_gpus() == ()


@pytest.mark.parametrize(("printed", "share"), [("20000, 80000", 0.25), ("[N/A], [N/A]", None), ("", None)])
def test_the_share_of_the_memory_in_use_is_that_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, share: float | None
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncase "$*" in *--id=GPU-aa*) echo "{printed}";; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert used_memory_share("GPU-aa") == share


def test_without_a_driver_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia_gpus() == ()
