"""Evaluation of the kernels of one `kernelrl check` with one evaluator, and again when their files change."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
    from kernelrl_core.types import Task, Turn

__all__ = ["CheckedKernel", "changes", "check_kernels", "split_arguments"]

_POLL_S = 0.3
_KEY_VALUE = re.compile(r"[A-Za-z_]\w*(\.\w+)*=")


@attrs.frozen
class CheckedKernel:
    """The result of one kernel file."""

    name: str
    """File as given, or `-`."""
    turn: Turn
    wall_s: float
    """Seconds from the start of the command, or from the change of the file, to the result."""

    @property
    def cached(self) -> bool:
        """Whether the evaluation is from the evaluation cache."""
        evaluation = self.turn.evaluation
        return evaluation is not None and bool(evaluation.provenance.get("cached"))

    def seconds(self) -> dict[str, float]:
        """Durations in seconds, which add up to `wall_s`: those of the evaluator, `check` for the checkers, and `wait`
        for the rest: reading the task, start of the evaluator, queue."""
        evaluation = self.turn.evaluation
        spent = dict(evaluation.seconds) if evaluation is not None and not self.cached else {}
        spent["check"] = spent.get("check", 0.0) + self.turn.seconds.get("check", 0.0)
        return spent | {"wait": max(0.0, self.wall_s - sum(spent.values()))}


def split_arguments(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Kernel files, and the overrides `KEY=VALUE` among the arguments. An existing file is never an override."""
    overrides = tuple(word for word in words if _KEY_VALUE.match(word) and not os.path.exists(word))
    return [word for word in words if word not in overrides], overrides


async def check_kernels(
    evaluator: CandidateEvaluator, task: Task, kernels: Sequence[tuple[str, str]], since: float
) -> AsyncIterator[CheckedKernel]:
    """Evaluate kernels concurrently, up to the capacity of the evaluator. Yields the results in the order given.

    Args:
        kernels: (file, text) of each kernel.
        since: value of `time.monotonic` from which `CheckedKernel.wall_s` counts.

    Raises:
        KernelRLError: a plugin failed, or the task is unusable.
    """
    tasks = [asyncio.create_task(_checked(evaluator, task, name, text, since)) for name, text in kernels]
    try:
        for one in tasks:
            yield await one
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _checked(evaluator: CandidateEvaluator, task: Task, name: str, text: str, since: float) -> CheckedKernel:
    from kernelrl_core.environment.one_kernel import evaluate_kernel

    return CheckedKernel(name, await evaluate_kernel(evaluator, task, text), time.monotonic() - since)


async def changes(list_files: Callable[[], Sequence[str]]) -> AsyncIterator[set[str]]:
    """Wait for changes of files. Yields the files that are new, or whose size or time of modification changed."""
    before = _stamps(list_files())
    while True:
        await asyncio.sleep(_POLL_S)
        now = _stamps(list_files())
        changed = {name for name, stamp in now.items() if before.get(name) != stamp}
        before = now
        if changed:
            yield changed


def _stamps(names: Sequence[str]) -> dict[str, tuple[int, int]]:
    found = {}
    for name in names:
        try:
            stat = os.stat(name)
        except OSError:  # an editor may replace a file by removing it first
            continue
        found[name] = (stat.st_mtime_ns, stat.st_size)
    return found
