"""The kernels of a check, and the result of each."""

from __future__ import annotations

from typing import Any

import attrs

from kernelrl_core.environment.checked_kernels import CheckedKernel
from kernelrl_core.errors import KernelRLError
from kernelrl_core.recipe.evaluation_spec import EvaluationSpec
from kernelrl_core.types import Task

__all__ = ["CheckResult", "KernelJob"]


@attrs.frozen
class KernelJob:
    """A kernel and its task, as they are evaluated."""

    name: str
    """File of the kernel, or `-`."""
    task: Task
    """The task, in the domain of the options."""
    text: str
    """Text of the file."""
    backend: str
    """Backend component."""
    files: tuple[str, ...] = attrs.field(default=(), eq=False)
    """Files of which a change may change the kernel or its task."""

    @property
    def place(self) -> tuple[str, str]:
        """Id of the task, and the kernel's file. They stay equal when the texts change."""
        return self.task.id, self.name


@attrs.frozen
class CheckResult:
    """The result of one kernel: its judged turn, or the reason why there is none."""

    job: KernelJob
    """Kernel and task."""
    spec: EvaluationSpec
    """The specification of the evaluation, with the timing that takes place."""
    untimed: str
    """The reason why the kernel was not timed; empty if it was."""
    checked: CheckedKernel | None
    """The judged kernel; None: there is an `error`."""
    error: KernelRLError | None = None
    """In a suite: the task is unusable, or this machine lacks a prerequisite of the kernel."""

    def row(self) -> dict[str, Any]:
        """The object that `kernelrl check --json` prints. Without a judged kernel, it has the reason as `message`, and
        `outcome` is None."""
        if self.checked is not None:
            return self.checked.row(self.spec, self.untimed)
        return {
            "task": self.job.task.id,
            "kernel": self.job.name,
            "backend": self.job.backend,
            "evaluator": self.spec.evaluator.use,
            "outcome": None,
            "verdict": None,
            "correct": False,
            "message": str(self.error),
        }
