"""`kernelrl check --watch`: changes of kernels, tasks and packages, and evaluations that a change makes stale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.merge import Merged
from kernelrl_core.types import BuildStatus, Evaluation, EvaluationRequest, Outcome
from kernelrl_experiments.check.command import _watched_lines
from kernelrl_experiments.check.kernel_check import KernelCheck
from kernelrl_experiments.check.options import CheckOptions, check_parts
from kernelrl_experiments.check.results import CheckResult
from kernelrl_testing.waiting import DEADLINE_S, wait_until_async

KERNEL = "import own\n\n\nclass ModelNew:\n    def forward(self, x):\n        return {word!r}\n"
TASK = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


class Endless(Evaluator):
    """Is correct for `right`, incorrect for `wrong`, and never ends for `endless`."""

    def __init__(self) -> None:
        self.begun: list[EvaluationRequest] = []
        self.cancelled = 0

    capacity = 4

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.begun.append(request)
        if "endless" in request.source:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        outcome = Outcome.CORRECT if "right" in request.source else Outcome.INCORRECT
        return Evaluation(outcome, build=BuildStatus.BUILT, speedup=2.0 if outcome is Outcome.CORRECT else None)


Watch = Callable[[Callable[[Endless, AsyncGenerator[CheckResult, None]], Awaitable[None]]], None]


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    """Watch `kernel.py` for `task.py` with the package in `src`, and call a function with evaluator and results."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src/own.py").write_text("")
    (tmp_path / "task.py").write_text(TASK)

    def run(act: Callable[[Endless, AsyncGenerator[CheckResult, None]], Awaitable[None]]) -> None:
        async def watched() -> None:
            merged = Merged({"backend": {"use": "cpp"}, "evaluator": {"use": "local"}})
            names = (str(tmp_path / "kernel.py"),)
            options = CheckOptions(
                str(tmp_path / "task.py"), names, merged, watch=True, timing=False, path=str(tmp_path / "src")
            )
            evaluator = Endless()
            parts = check_parts(options, registry())
            check = KernelCheck(options, parts, None, evaluator, registry(), lambda line: None)
            async with asyncio.timeout(DEADLINE_S), aclosing(check.results(0.0)) as results:
                await act(evaluator, results)
            await check.aclose()

        asyncio.run(watched())

    return run


def test_an_evaluation_whose_kernel_changes_is_dropped(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL.format(word="endless"))

    async def act(evaluator: Endless, results: AsyncGenerator[CheckResult, None]) -> None:
        first = asyncio.create_task(anext(results))
        await wait_until_async(lambda: bool(evaluator.begun))
        (tmp_path / "kernel.py").write_text(KERNEL.format(word="right"))
        found = await first
        assert found.checked is not None
        assert (found.checked.turn.outcome, evaluator.cancelled) == (Outcome.CORRECT, 1)

    watch(act)


@pytest.mark.parametrize("file", ["src/own.py", "task.py"])
def test_a_change_of_the_package_or_the_task_evaluates_the_kernel_again(
    watch: Watch, tmp_path: Path, file: str
) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL.format(word="right"))

    async def act(evaluator: Endless, results: AsyncGenerator[CheckResult, None]) -> None:
        await anext(results)
        second = asyncio.create_task(anext(results))
        (tmp_path / file).write_text(f"{TASK}# changed\n")
        await second
        requests = evaluator.begun
        changed = (requests[1].package["own.py"], requests[1].task_source)
        assert sum("# changed" in text for text in changed) == 1

    watch(act)


def test_a_result_names_its_change_against_the_last_version(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL.format(word="wrong"))

    async def act(evaluator: Endless, results: AsyncGenerator[CheckResult, None]) -> None:
        first = await anext(results)
        (tmp_path / "kernel.py").write_text(KERNEL.format(word="right"))
        second = await anext(results)
        _, change = _watched_lines(second, first)
        assert change == "change    incorrect before, correct now"
        assert _watched_lines(second, second)[1] == "change    speedup 2.00 before, 2.00 now (+0%)"

    watch(act)
