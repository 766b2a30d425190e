"""The task source `starter`: tasks and their demonstrations."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.tasks import Demonstration, Task, TaskSource
from kernelrl_plugin_starter.catalogue import ENTRIES
from kernelrl_plugin_starter.config import StarterOptions
from kernelrl_plugin_starter.demonstrations import demonstrations
from kernelrl_plugin_starter.frames import Frame
from kernelrl_plugin_starter.practice import EQUAL, GeneratedTask, generated_tasks
from kernelrl_plugin_starter.sizes import enlarged

__all__ = ["StarterTasks"]

_SPLITS = ("train", "held_out", "practice")


class StarterTasks(TaskSource):
    """kernelrl's own small tasks in KernelBench's format, with correct and flawed demonstrations in Triton and C++.

    Raises:
            UsageError: `names` contains an unknown name.
    """

    training_splits = ("practice",)

    def __init__(self, options: StarterOptions) -> None:
        known = [entry.name for entry in ENTRIES]
        for name in options.names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f", did you mean '{near[0]}'?" if near else ""
                raise UsageError(
                    f"starter: no task named '{name}'{hint}", fix="kernelrl tasks list", see="unknown-name"
                )
        self._options = options
        chosen = [e for e in ENTRIES if e.level in options.levels and (not options.names or e.name in options.names)]
        self._entries = {entry.id: entry for entry in chosen}
        self._tasks = [
            Task(entry.id, self._sized(entry.reference(), entry.frame), entry.split, level=entry.level, name=entry.name)
            for entry in chosen
        ]
        self._practice = {f"starter/practice/{made.name}": made for made in generated_tasks(options.practice)}

    def _sized(self, reference: str, frame: Frame) -> str:
        return reference if self._options.size == "small" else enlarged(reference, frame, self._options.size)

    def splits(self) -> Sequence[str]:
        """`train`, `held_out`, and `practice`, the generated tasks for the warm start."""
        return _SPLITS

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of a split, sorted by level, then in the order of the catalogue."""
        if split not in _SPLITS:
            raise UsageError(f"starter: no split named '{split}'; known: {', '.join(_SPLITS)}")
        if split == "practice":
            return [self._practice_task(id_, made) for id_, made in self._practice.items()]
        return [task for task in self._tasks if task.split == split]

    def _practice_task(self, id_: str, made: GeneratedTask) -> Task:
        equals = tuple(task.sha256 for task in self._tasks if task.id == EQUAL.get(made.name))
        return Task(id_, self._sized(made.reference, made.frame), "practice", name=made.name, equals=equals)

    def manifest(self) -> Mapping[str, Any]:
        """Content hash of every task, by split."""
        return {
            "source": "starter",
            "tasks": {split: {task.id: task.sha256 for task in self.tasks(split)} for split in _SPLITS},
        }

    def demonstrations(self, task: Task) -> Sequence[Demonstration]:
        """Correct and flawed demonstrations; the weights of each backend sum to 1.

        Empty for held-out tasks and for tasks of other sources.
        """
        options = self._options
        if task.id in self._practice:
            made = self._practice[task.id]
            return demonstrations(made.reference, made.frame, int(made.name[-4:]), options.right_share, options.size)
        entry = self._entries.get(task.id)
        if entry is None or entry.split != "train":
            return []
        return demonstrations(entry.reference(), entry.frame, ENTRIES.index(entry), options.right_share, options.size)
