"""What is around an evaluation: the working directory, processes of ours that do not start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernelrl_core.errors import InfrastructureError
from kernelrl_judge import worker
from kernelrl_judge.running import Zygote, ZygoteDied, ZygoteNotStarted
from kernelrl_judge.worker import JudgeDied, JudgeWorker
from kernelrl_plugin_local import lanes


def test_files_of_the_working_directory_are_no_modules_of_the_judge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("torch", "cuda", "triton", "kernelrl_core"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')\n")
    monkeypatch.chdir(tmp_path)

    async def start() -> None:
        judge = JudgeWorker()
        await judge._started()
        await judge.aclose()

    asyncio.run(start())
    assert not (tmp_path / "imported").exists()


def test_a_judge_that_does_not_start_is_no_death_under_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker.sys, "executable", "/bin/false")
    with pytest.raises(InfrastructureError) as caught:
        asyncio.run(JudgeWorker()._started())
    assert not isinstance(caught.value, JudgeDied)


def test_a_zygote_that_does_not_start_is_no_death_under_a_candidate() -> None:
    with pytest.raises(ZygoteNotStarted) as caught:
        Zygote("kernelrl_nothing.here:Runner", "cpu", {})
    assert not isinstance(caught.value, ZygoteDied)


def test_variables_make_no_gpu_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(lanes, "gpu_vendors", lambda: frozenset())
    assert lanes.visible_gpus() == []
    monkeypatch.setattr(lanes, "gpu_vendors", lambda: frozenset({"nvidia"}))
    assert lanes.visible_gpus() == ["0", "1"]
