"""The hardware block of a prompt."""

from __future__ import annotations

import pytest

from kernelrl_core.errors import MissingPrerequisite, UsageError
from kernelrl_core.prompts.hardware import hardware_block
from kernelrl_devices.data_sheets import GPUS


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_every_gpu_has_a_block(gpu):
    facts = dict(hardware_block(gpu.name).facts)
    assert {"Architecture", "Memory"} <= facts.keys()
    assert all("None" not in value for value in facts.values())


def test_unknown_gpu_suggests_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'H200'"):
        hardware_block("H201")


def test_auto_reads_the_driver(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'GPU-1, NVIDIA L40S, 8.9, 550.54, 46068'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert hardware_block("auto").name == "L40S"


def test_auto_without_a_gpu_reports_the_fix(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPrerequisite, match="gpu=H100"):
        hardware_block("auto")
