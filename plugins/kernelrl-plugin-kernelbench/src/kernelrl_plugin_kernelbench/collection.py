"""A checked collection of tasks in two splits, which all three sources create."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.errors import LookupFailed, UsageError, suggestion
from kernelrl_core.api.tasks import Task, TaskSource, annotate, parse_task_source, read_audits
from kernelrl_plugin_kernelbench.kernel_names import parse_kernel_file, task_place

__all__ = ["HELD_OUT", "TRAIN", "Collection", "Found", "collect", "refuse"]

TRAIN, HELD_OUT = "train", "held_out"

_MAX_LINES = 20


@attrs.frozen
class Found:
    """A task that is not checked yet, and its location."""

    task: Task
    where: str
    """File, or file and row, for messages."""


@attrs.frozen
class Collection:
    """Tasks by split, in a stable order, and their origin."""

    by_split: Mapping[str, tuple[Task, ...]]
    origin: Mapping[str, Any]
    """Source, searched location and revision of the tasks: part of the manifest."""

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.by_split:
            hint = suggestion(split, self.by_split)
            fix = "set the option holdout of the task source" if split == HELD_OUT else ""
            raise UsageError(f"{self.origin['source']}: no split {split!r}; {hint}", fix=fix, see="split")
        return self.by_split[split]

    def manifest(self) -> Mapping[str, Any]:
        hashes = {split: {task.id: task.sha256 for task in tasks} for split, tasks in self.by_split.items()}
        return {**self.origin, "tasks": hashes}


class LazyCollection(TaskSource):
    """A task source that reads its collection on first use, so that a recipe can be validated without it."""

    def __init__(self) -> None:
        self._collection: Collection | None = None

    @abstractmethod
    def _read(self) -> Collection:
        """Read the collection."""

    @property
    def _read_once(self) -> Collection:
        if self._collection is None:
            self._collection = self._read()
        return self._collection

    def splits(self) -> Sequence[str]:
        """Names of the splits that have tasks, `train` first."""
        return tuple(self._read_once.by_split)

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split; for errors see `TaskSource.tasks`."""
        return self._read_once.tasks(split)

    def task_of_file(self, name: str) -> tuple[str, int] | None:
        """Task and sample of a kernel file of KernelBench."""
        kernel = parse_kernel_file(name)
        if kernel is None:
            return None
        ids = self._ids_by_place
        if (id_ := ids.get((kernel.level, kernel.number))) is not None:
            return id_, kernel.sample
        levels = sorted({level for level, _ in ids})
        has = f"it has levels {', '.join(map(str, levels))}" if levels else "its tasks are not numbered"
        raise LookupFailed(f"the recipe has no task {kernel.number} of level {kernel.level}; {has}")

    @functools.cached_property
    def _ids_by_place(self) -> Mapping[tuple[int, int], str]:
        """Level and number of a task -> its id."""
        tasks = [task for split in self.splits() for task in self.tasks(split)]
        return {place: task.id for task in tasks if (place := task_place(task.id, task.level)) is not None}

    def manifest(self) -> Mapping[str, Any]:
        """Origin, hold-out, and the content hashes of all tasks by split."""
        return self._read_once.manifest()


def collect(
    found: Iterable[Found],
    held_out: Callable[[Sequence[Task]], set[str]],
    origin: dict[str, Any],
    audit: Path | None = None,
) -> Collection:
    """Check the found tasks and assign them to splits.

    Args:
        held_out: function from the tasks to the ids of the split `held_out`.
        origin: see `Collection.origin`; must have the keys `source` and `searched`.
        audit: file of audits, which set flags and input overlays of tasks with the same content hash.

    Raises:
        UsageError: no task was found, ids occur twice, or sources are not tasks; the message lists all problems.
    """
    tasks: dict[str, Task] = {}
    places: dict[str, str] = {}
    problems = []
    for item in found:
        id_ = item.task.id
        if id_ in tasks:
            problems.append(f"{item.where}: task id {id_!r} is already used by {places[id_]}")
            continue
        tasks[id_], places[id_] = item.task, item.where
        try:
            parse_task_source(item.task.reference, item.where)
        except UsageError as error:
            problems.append(error.message)
    refuse(problems)
    if not tasks:
        raise UsageError(f"{origin['source']}: no task was found; searched {origin['searched']}")
    audits = {item.sha256: item for item in read_audits(audit)} if audit is not None else {}
    chosen = held_out(list(tasks.values()))
    by_split: dict[str, list[Task]] = {}
    for task in tasks.values():
        split = HELD_OUT if task.id in chosen else task.split
        by_split.setdefault(split, []).append(attrs.evolve(annotate(task, audits), split=split))
    order = sorted(by_split, key=lambda split: split != TRAIN)
    return Collection({split: tuple(by_split[split]) for split in order}, origin)


def refuse(problems: Sequence[str]) -> None:
    """Raise one error for all problems; its message has the first 20 of them.

    Raises:
        UsageError: `problems` is not empty.
    """
    if problems:
        rest = len(problems) - _MAX_LINES
        raise UsageError("\n".join([*problems[:_MAX_LINES], *([f"… and {rest} more"] if rest > 0 else [])]))
