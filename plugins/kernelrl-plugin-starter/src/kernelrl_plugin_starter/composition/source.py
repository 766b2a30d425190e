"""The task source `compose`: generated tasks and their demonstrations."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.tasks import Demonstration, Outcome, Task, TaskSource
from kernelrl_plugin_starter.composition.grammar import Composition, compositions, name_of, single_parts
from kernelrl_plugin_starter.composition.kernels import kernel_files
from kernelrl_plugin_starter.composition.problems import Problem, problem
from kernelrl_plugin_starter.config import ComposeOptions

__all__ = ["ComposeTasks"]


class ComposeTasks(TaskSource):
    """Generated tasks: chains of elementwise operations, row operations, scans, reductions and small matrix products.

    A held-out task combines two parts that no training task and no demonstration combines. The demonstrations are
    correct Triton kernels of three speeds.
    """

    training_splits = ("practice",)

    def __init__(self, options: ComposeOptions) -> None:
        self._options = options
        self._listed: dict[str, Sequence[Task]] = {}
        self._problems: dict[str, Problem] = {}

    def splits(self) -> Sequence[str]:
        """`train`, `held_out`, and `practice`: each part alone, for the warm start only."""
        return ("train", "held_out", "practice")

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of a split, in the order in which they were drawn. More tasks of a split begin with the same ones.

        Raises:
            UsageError: unknown split, or there are fewer compositions than the options demand.
        """
        if split not in self._listed:
            self._listed[split] = [self._task(one, split) for one in self._compositions(split)]
        return self._listed[split]

    def manifest(self) -> Mapping[str, Any]:
        """Content hash of every task, by split."""
        hashes = {split: {task.id: task.sha256 for task in self.tasks(split)} for split in self.splits()}
        return {"source": "compose", "tasks": hashes}

    def demonstrations(self, task: Task) -> Sequence[Demonstration]:
        """A fast, a middling and a slow kernel, with equal weights; none for held-out tasks."""
        if task.split not in ("train", "practice"):
            return ()
        self.tasks(task.split)
        made = self._problems.get(task.id)
        if made is None:
            return ()
        return [Demonstration(source, "triton", Outcome.CORRECT, weight=1 / 3) for source in kernel_files(made)]

    def _compositions(self, split: str) -> Iterable[Composition]:
        options = self._options
        if split == "practice":
            return single_parts()
        counts = {"train": options.count, "held_out": options.held_out}
        if split not in counts:
            raise UsageError(f"compose: no split named '{split}'; known: {', '.join(self.splits())}")
        drawn = compositions(options.levels, options.seed, held_out=split == "held_out")
        found = list(itertools.islice(drawn, counts[split]))
        if len(found) < counts[split]:
            option = "count" if split == "train" else "held_out"
            raise UsageError(
                f"compose: {option}={counts[split]}, but there are only {len(found)} compositions of these lengths",
                fix=f"set tasks.{option}={len(found)}, or name more levels",
            )
        return found

    def _task(self, composition: Composition, split: str) -> Task:
        options = self._options
        made = problem(composition, options.size, options.dtypes, options.seed)
        name = name_of(composition)
        id_ = f"compose/{len(composition)}/{name}"
        self._problems[id_] = made
        return Task(id_, made.reference(), split, level=len(composition), name=name)
