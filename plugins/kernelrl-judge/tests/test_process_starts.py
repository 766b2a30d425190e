"""Starts and ends of judges and zygotes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelrl_core.api.errors import InfrastructureError
from kernelrl_judge.client.worker import JudgeDied, JudgeWorker

NO_ZYGOTE = """\
from kernelrl_judge.peer.nursery import Nursery, Zygote
try:
    Zygote(Nursery(), "kernelrl_nothing.here:Runner", "cpu", {}).fork({}, [])
except Exception as error:
    print(type(error).__name__, error)
"""


def test_files_of_the_working_directory_are_no_modules_of_the_judge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("torch", "cuda", "triton", "kernelrl_core"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')\n")
    monkeypatch.chdir(tmp_path)

    async def start_judge() -> None:
        judge = JudgeWorker()
        await judge._started()
        await judge.aclose()

    asyncio.run(start_judge())
    assert not (tmp_path / "imported").exists()


def test_a_judge_that_does_not_start_is_an_infrastructure_error_and_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(InfrastructureError) as caught:
        asyncio.run(JudgeWorker()._started())
    assert not isinstance(caught.value, JudgeDied)


def test_a_zygote_that_does_not_start_raises_the_reason() -> None:
    done = subprocess.run([sys.executable, "-c", NO_ZYGOTE], capture_output=True, text=True, timeout=60, check=True)
    assert "ZygoteNotStarted" in done.stdout
    assert "No module named 'kernelrl_nothing'" in done.stdout


def test_a_judge_that_is_still_starting_can_be_closed_at_once() -> None:
    async def closing_s() -> float:
        judge = JudgeWorker()
        await judge.start()
        begin = time.monotonic()
        await judge.aclose()
        return time.monotonic() - begin

    assert asyncio.run(closing_s()) < 0.5
