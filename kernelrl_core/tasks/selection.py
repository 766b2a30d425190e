"""Tasks that are trained on, and tasks that are evaluated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.recipe.schema import EvalSettings, TrainSettings
from kernelrl_core.types import Task
from kernelrl_core.types.audits import quarantine_reasons

__all__ = ["eval_tasks", "listed", "training_tasks"]


def eval_tasks(source: TaskSource, settings: EvalSettings) -> list[Task]:
    """The tasks that are evaluated.

    Raises:
        UsageError: the split is unknown or empty.
        KernelRLError: the source failed.
    """
    tasks = list(listed(source, settings.split))[: settings.max_tasks]
    if not tasks:
        raise UsageError(f"split {settings.split!r} holds no tasks to evaluate")
    return tasks


def training_tasks(source: TaskSource, settings: TrainSettings) -> tuple[Sequence[Task], str | None]:
    """Tasks that are trained on, and a line that says how many were left out and why.

    Raises:
        UsageError: the split is unknown, or nothing of it is left.
        KernelRLError: the source failed.
    """
    tasks = listed(source, settings.split)
    if not settings.quarantine:
        return tasks, None
    kept = [task for task in tasks if not quarantine_reasons(task)]
    if len(kept) == len(tasks):
        return tasks, None
    line = f"{len(tasks) - len(kept)} of {len(tasks)} tasks are in quarantine ({_counted(tasks)})"
    if not kept:
        raise UsageError(f"split {settings.split!r}: {line}", fix="train.quarantine=false trains on them all the same")
    return kept, f"{line}; train.quarantine=false takes them"


def listed(source: TaskSource, split: str) -> Sequence[Task]:
    """The tasks of a split.

    Raises:
        KernelRLError: the source's own message, or one that names the source where its code failed.
    """
    kind = type(source)
    with plugin_boundary(f"task source {kind.__module__}:{kind.__qualname__}", f"listing split {split!r}"):
        return source.tasks(split)


def _counted(tasks: Iterable[Task]) -> str:
    counts = Counter(reason for task in tasks for reason in quarantine_reasons(task))
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())
