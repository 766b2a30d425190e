"""What is around an evaluation: the working directory, processes of ours that do not start."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernelrl_core.errors import InfrastructureError
from kernelrl_core.types import Outcome
from kernelrl_judge.client import worker
from kernelrl_judge.client.worker import JudgeDied, JudgeWorker
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator

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
    done = subprocess.run([sys.executable, "-c", NO_ZYGOTE], capture_output=True, text=True, timeout=60, check=True)
    assert "ZygoteNotStarted" in done.stdout
    assert "No module named 'kernelrl_nothing'" in done.stdout


def test_what_cannot_be_timed_has_a_reason(bench: Any) -> None:
    why = bench.evaluator.why_untimed
    assert "interpreter" in why("triton", {"mode": "interpreter"})
    assert "not executed" in why("cuda", {"mode": "compile"})
    assert why("cpp", {}) == ""


def test_an_expected_judge_is_the_one_that_evaluates(bench: Any, good: str) -> None:
    async def scene() -> None:
        evaluator = LocalEvaluator(LocalConfig(workers=2))
        before = set(psutil.Process().children())
        await evaluator.expect("triton")
        started = set(psutil.Process().children()) - before
        assert len(started) == 1
        assert (await evaluator.evaluate(bench.request(good))).outcome is Outcome.CORRECT
        assert set(psutil.Process().children()) - before == started
        await evaluator.aclose()

    asyncio.run(scene())


def test_a_judge_that_is_not_needed_after_all_ends_at_once() -> None:
    async def scene() -> float:
        judge = JudgeWorker()
        await judge.start()
        begin = time.monotonic()
        await judge.aclose()
        return time.monotonic() - begin

    assert asyncio.run(scene()) < 0.5
