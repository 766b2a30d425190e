"""Evaluation of kernels for `assert_kernel`, the fixture of `kernelrl_testing.fixtures`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
from kernelrl_core.environment.one_kernel import evaluate_kernel, find_backends, why_untimed, with_timing
from kernelrl_core.errors import InfrastructureError, MissingPrerequisite
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.evaluation_spec import DEFAULT_EVALUATION, read_evaluation_spec
from kernelrl_core.sources.kernel_files import KernelReader
from kernelrl_core.sources.packages import imported_texts
from kernelrl_core.sources.plain_functions import as_model, as_task
from kernelrl_core.sources.task_source import parse_task_source
from kernelrl_core.tasks.lookup import find_task
from kernelrl_core.types import Task, Turn, Verdict

__all__ = ["KernelTests", "TestedKernel"]


@attrs.frozen
class TestedKernel:
    """A kernel after its evaluation."""

    __test__ = False  # no tests for pytest

    name: str
    """Its file; `kernel` for a text."""
    turn: Turn
    """The evaluated turn."""
    why_untimed: str
    """Why this machine cannot time the kernel; empty if it can, or if no time is required."""

    def failure(self, min_speedup: float | None, *, lenient: bool) -> str:
        """Why the kernel fails, in lines; empty if it does not. A speedup that this machine cannot measure is none."""
        from kernelrl_core.environment.turn_text import turn_lines

        turn, speedup = self.turn, self.turn.speedup
        reason = ""
        if turn.correct and not lenient and turn.verdict is not Verdict.CLEAN:
            reason = "suspect; lenient=True accepts it"
        elif turn.correct and min_speedup is not None and not self.why_untimed and self._highest() < min_speedup:
            measured = "not measured" if speedup is None else f"{speedup:.2f} (at most {self._highest():.2f})"
            reason = f"speedup {measured}, and min_speedup={min_speedup:g}"
        elif turn.correct:
            return ""
        first, *lines = turn_lines(turn, self.why_untimed)
        return "\n".join([f"{self.name}: {reason or first}", *([first] if reason else []), *lines])

    def _highest(self) -> float:
        """Upper end of the interval of the speedup; 0 without a speedup."""
        if self.turn.evaluation is None or self.turn.speedup is None:
            return 0.0
        interval = self.turn.evaluation.speedup_ci
        return self.turn.speedup if interval is None else interval[1]


class KernelTests:
    """Evaluates kernels by one evaluator.

    Args:
        evaluator: a started evaluator, which stays open.
        block: its name and options, as in a recipe.
    """

    def __init__(self, evaluator: Evaluator, block: Mapping[str, Any], registry: Registry) -> None:
        self._evaluator, self._block, self._registry = evaluator, block, registry
        self._secret = secrets.token_bytes(32)
        self._known: dict[tuple[str, bool, tuple[str, ...]], tuple[CandidateEvaluator, str]] = {}

    async def evaluate(
        self,
        reference: str | os.PathLike[str],
        kernel: str | os.PathLike[str],
        *,
        backend: str | None,
        timing: bool,
        function: str = "",
        path: str = "",
        overrides: Sequence[str] = (),
    ) -> TestedKernel:
        """Evaluate a kernel.

        Args:
            function, path: see `KernelReader`.

        Raises:
            MissingPrerequisite: this machine cannot execute the kernel.
            UsageError: reference, kernel or an override cannot be used.
            InfrastructureError: the evaluation failed, which says nothing about the kernel.
        """
        task = self._task(reference)
        reader = KernelReader.opened(function, path)
        if _is_text(kernel):
            name, text = "kernel", as_model(str(kernel), function, "kernel") if function else str(kernel)
        else:
            name = os.fspath(kernel)
            text = reader.read(name)
        texts = "\n".join([text, *imported_texts(text, reader.package)])
        backend = backend or next(iter(find_backends(texts, self._registry)), DEFAULT_EVALUATION["backend"]["use"])
        evaluator, reason = self._made(backend, timing, tuple(overrides))
        turn = await evaluate_kernel(evaluator, task, text, name=name, package=reader.package)
        if turn.evaluation is not None and turn.evaluation.checked:
            raise MissingPrerequisite(
                f"{name}: {turn.message}", fix="use a machine with a GPU for this backend", see="gpu"
            )
        if turn.masked:
            raise InfrastructureError(f"{name}: the evaluation failed: {turn.message}")
        return TestedKernel(name, turn, reason)

    def _task(self, reference: str | os.PathLike[str]) -> Task:
        if not _is_text(reference):
            return find_task(os.fspath(reference), registry=self._registry)
        text = as_task(str(reference), "reference")
        parse_task_source(text, "reference")
        return Task("reference", text)

    def _made(self, backend: str, timing: bool, overrides: tuple[str, ...]) -> tuple[CandidateEvaluator, str]:
        """The evaluator for a specification, and why it does not time kernels although `timing` requires it."""
        key = (backend, timing, overrides)
        if key not in self._known:
            plain = {**DEFAULT_EVALUATION, "backend": {"use": backend}, "evaluator": self._block}
            spec = read_evaluation_spec(plain, overrides, registry=self._registry)
            reason = why_untimed(spec, self._evaluator, self._registry) if timing else ""
            made = CandidateEvaluator.from_spec(
                with_timing(spec, timing and not reason),
                registry=self._registry,
                secret=self._secret,
                cache_dir=None,
                evaluator=self._evaluator,
            )
            self._known[key] = made, reason
        return self._known[key]


def _is_text(value: str | os.PathLike[str]) -> bool:
    """Whether `value` is source text; a single line is a path."""
    return isinstance(value, str) and "\n" in value
