"""Leaks: examples and training tasks that contain the solution of a task or of a held-out task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from kernelrl_core.types import Task
from kernelrl_sources.similarity import NearDuplicates, nearly_equal

__all__ = ["Address", "LeakGuard", "address_of", "decontaminated"]

Address = tuple[str, int, str]
"""Task source, level, and number or name of a task."""

_NUMBERED = re.compile(r"(?:^|/)level[_ -]?(\d+)/(?:[^/]+/)*?(?:problem[_ -]?)?(\d+)(?![\d.])", re.IGNORECASE)
_NAMED = re.compile(r"^(\w+)/(?:level[_ -]?)?(\d+)/([\w.-]+)$", re.IGNORECASE)


def address_of(name: str) -> Address | None:
    """Source, level and number of a task or example; None if its name has no level.

    Known forms: `kernelbench/1/19`, `starter/2/softmax`, and KernelBench's own `level1/19_ReLU.py`, also with folders
    around (`level_1/task_19/kernel`, `level1/cuda/19_ReLU`).
    """
    if found := _NUMBERED.search(name.replace("task_", "")):
        return ("kernelbench", int(found[1]), str(int(found[2])))
    if found := _NAMED.match(name):
        number = re.match(r"(\d+)(?:_|\.|$)", found[3])
        return (found[1].lower(), int(found[2]), str(int(number[1])) if number else found[3].removesuffix(".py"))
    return None


class LeakGuard:
    """Recognises examples that contain the solution of a task or of a held-out task.

    Args:
        held_out: all tasks of the split that is evaluated.
    """

    def __init__(self, held_out: Sequence[Task]) -> None:
        self._hashes = {task.sha256 for task in held_out}
        self._held_out = NearDuplicates((task.id, task.reference) for task in held_out)
        self._addresses = {address for task in held_out if (address := address_of(task.id))}

    def leak(
        self, task: Task, reference: str, name: str, solves: Sequence[str] = ()
    ) -> Literal["", "leak_task", "leak_held_out"]:
        """Whether an example is a leak: its reference nearly equals one of these tasks or has its outputs, or its name
        is that of one.

        Args:
            task: task of the prompt.
            reference: reference of the example.
            name: name of the example, which may contain level and number of a task.
            solves: content hashes of the tasks whose outputs the reference has.
        """
        address = address_of(name)
        is_named = address is not None and address == address_of(task.id)
        if is_named or task.sha256 in solves or nearly_equal(task.reference, reference):
            return "leak_task"
        if address in self._addresses or not self._hashes.isdisjoint(solves) or self._held_out.matches(reference):
            return "leak_held_out"
        return ""


def decontaminated(tasks: Sequence[Task], held_out: Sequence[Task]) -> tuple[Sequence[Task], str | None]:
    """The training tasks that equal no held-out task, and a line about the others; None if there are none.

    Tasks are equal if their sources nearly are, or if an audit found equal outputs. The line lists the excluded tasks
    by the held-out task that they equal.
    """
    index = NearDuplicates((task.id, task.reference) for task in held_out)
    held_out_ids = {task.sha256: task.id for task in held_out}
    equal_to = {sha256: task.id for task in held_out for sha256 in task.equals}
    equals: dict[str, str] = {}
    for task in tasks:
        equal_ids = [held_out_ids[sha256] for sha256 in task.equals if sha256 in held_out_ids]
        if found := index.matches(task.reference):
            equals[task.id] = found[0][0]
        elif equal_ids:
            equals[task.id] = equal_ids[0]
        elif task.sha256 in equal_to:
            equals[task.id] = equal_to[task.sha256]
    if not equals:
        return tasks, None
    of_held_out: dict[str, list[str]] = {}
    for id_, equal in equals.items():
        of_held_out.setdefault(equal, []).append(id_)
    listed = "; ".join(f"{id_}: {', '.join(ids)}" for id_, ids in of_held_out.items())
    line = f"{len(equals)} of {len(tasks)} training tasks equal held-out tasks and are excluded ({listed})"
    return [task for task in tasks if task.id not in equals], line
