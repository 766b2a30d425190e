"""Selection of the training tasks and of the tasks of held-out evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kernelrl_core.errors import UsageError, nearest
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.plugins.boundary import plugin_boundary, returned
from kernelrl_core.recipe.schema import EvalSettings, TrainSettings
from kernelrl_core.tasks.leaks import decontaminated
from kernelrl_core.types import Task
from kernelrl_core.types.audits import quarantine_reasons

__all__ = ["eval_tasks", "held_out_tasks", "listed", "training_tasks"]


def eval_tasks(source: TaskSource, settings: EvalSettings) -> list[Task]:
    """The tasks of held-out evaluation, at most `settings.max_tasks`.

    Raises:
        UsageError: the split is unknown or empty.
        KernelRLError: the source failed.
    """
    tasks = list(listed(source, settings.split))[: settings.max_tasks]
    if not tasks:
        others = ", ".join(split for split in source.splits() if split != settings.split)
        raise UsageError(
            f"split {settings.split!r} has no tasks to evaluate",
            fix=f"change the task source, or set eval.split to another split: {others or 'there is none'}",
            see="split",
        )
    return tasks


def training_tasks(
    source: TaskSource, settings: TrainSettings, held_out: str | None = None
) -> tuple[Sequence[Task], str | None]:
    """The training tasks, and a line for each reason to exclude tasks; None if no task is excluded.

    Args:
        held_out: split of held-out evaluation. None: `train.decontaminate` has no effect.

    Raises:
        UsageError: the split is unknown, or all of its tasks are excluded.
        KernelRLError: the source failed.
    """
    tasks = listed(source, settings.split)
    where = f"split {settings.split!r}"
    lines: list[str] = []
    if settings.quarantine:
        kept = [task for task in tasks if not quarantine_reasons(task)]
        if len(kept) < len(tasks):
            line = f"{len(tasks) - len(kept)} of {len(tasks)} tasks are in quarantine ({_counted(tasks)})"
            if not kept:
                raise UsageError(f"{where}: {line}", fix="train.quarantine=false trains on them anyway", see="split")
            tasks = kept
            lines.append(f"{line}; train.quarantine=false includes them")
    clean, found = decontaminated(tasks, held_out_tasks(source, settings, held_out))
    if found is not None:
        if not clean:
            raise UsageError(f"{where}: {found}", fix="train.decontaminate=false trains on them anyway", see="split")
        lines.append(f"{found}; train.decontaminate=false includes them")
    return clean, "\n".join(lines) or None


def held_out_tasks(source: TaskSource, settings: TrainSettings, held_out: str | None) -> Sequence[Task]:
    """The tasks whose near duplicates `train.decontaminate` excludes; none if the source has no such split.

    Raises:
        KernelRLError: the source failed.
    """
    if not settings.decontaminate or held_out is None or held_out == settings.split:
        return ()
    return listed(source, held_out) if held_out in source.splits() else ()


def listed(source: TaskSource, split: str) -> Sequence[Task]:
    """The tasks of a split.

    Raises:
        UsageError: raised by the source. For an unknown split, the message names the nearest one.
        KernelRLError: raised by the source, or an unexpected error of the source, with its name.
    """
    label = f"task source {type(source).__module__}:{type(source).__qualname__}"
    with plugin_boundary(label, f"listing split {split!r}"):
        try:
            tasks = returned(source.tasks(split), Sequence, label, "tasks")  # type: ignore[type-abstract]
            for task in tasks[:1]:  # all are of one type, and a long list may be read when it is used
                returned(task, Task, label, "tasks")
            return tasks
        except UsageError as error:
            known = source.splits()
            if split not in known and (close := nearest(split, known)):
                error.message += f"; did you mean {close!r}?"
            raise


def _counted(tasks: Iterable[Task]) -> str:
    counts = Counter(reason for task in tasks for reason in quarantine_reasons(task))
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())
