"""The starter tasks as a source of tasks with answers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.tasks import Demonstration, Task, TaskSource
from kernelrl_plugin_starter.answers import answers
from kernelrl_plugin_starter.catalogue import ENTRIES
from kernelrl_plugin_starter.config import StarterOptions
from kernelrl_plugin_starter.frames import Frame
from kernelrl_plugin_starter.practice import practice
from kernelrl_plugin_starter.sizes import enlarged

__all__ = ["StarterTasks"]

_SPLITS = ("train", "held_out", "practice")


class StarterTasks(TaskSource):
    """Small tasks of kernelrl's own, in KernelBench's format, with right and flawed answers in Triton and C++.

    Raises:
        UsageError: `names` holds an unknown name.
    """

    def __init__(self, options: StarterOptions) -> None:
        known = [entry.name for entry in ENTRIES]
        for name in options.names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f", did you mean '{near[0]}'?" if near else ""
                raise UsageError(f"starter: no task is named '{name}'{hint}", fix="kernelrl tasks list")
        self._options = options
        chosen = [e for e in ENTRIES if e.level in options.levels and (not options.names or e.name in options.names)]
        self._entries = {entry.id: entry for entry in chosen}
        self._tasks = [
            Task(entry.id, self._sized(entry.reference(), entry.frame), entry.split, level=entry.level, name=entry.name)
            for entry in chosen
        ]
        self._practice = {f"starter/practice/{made.name}": made for made in practice(options.practice)}

    def _sized(self, reference: str, frame: Frame) -> str:
        return reference if self._options.size == "small" else enlarged(reference, frame, self._options.size)

    def splits(self) -> Sequence[str]:
        """`train`, `held_out`, and `practice`, whose tasks serve the warm start alone."""
        return _SPLITS

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split, by level, in the order of the catalogue."""
        if split not in _SPLITS:
            raise UsageError(f"starter: no split is named '{split}'; there are {', '.join(_SPLITS)}")
        if split == "practice":
            return [
                Task(id_, self._sized(made.reference, made.frame), split, name=made.name)
                for id_, made in self._practice.items()
            ]
        return [task for task in self._tasks if task.split == split]

    def manifest(self) -> Mapping[str, Any]:
        """Hash of every task, by split."""
        return {
            "source": "starter",
            "tasks": {split: {task.id: task.sha256 for task in self.tasks(split)} for split in _SPLITS},
        }

    def demonstrations(self, task: Task) -> Sequence[Demonstration]:
        """Right and flawed answers, the weights of a backend adding up to 1; none for a held-out or foreign task."""
        options = self._options
        if task.id in self._practice:
            made = self._practice[task.id]
            return answers(made.reference, made.frame, int(made.name[-4:]), options.right_share, options.size)
        entry = self._entries.get(task.id)
        if entry is None or entry.split != "train":
            return []
        return answers(entry.reference(), entry.frame, ENTRIES.index(entry), options.right_share, options.size)
