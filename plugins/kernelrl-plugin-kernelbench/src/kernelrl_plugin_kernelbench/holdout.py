"""Selection of the held-out tasks: a random share of every level, names, or published lists."""

from __future__ import annotations

import fnmatch
import hashlib
from collections import defaultdict
from collections.abc import Sequence

from kernelrl_core.api.errors import UsageError, suggestion
from kernelrl_core.api.tasks import Task
from kernelrl_plugin_kernelbench.config import FractionHoldout, LevelNumbers, NamedHoldout

__all__ = ["KEVIN", "by_fraction", "by_names", "held_out_ids"]

KEVIN = LevelNumbers(level1=(3, 10, 25, 40, 45, 51, 60, 63, 90, 97), level2=tuple(range(10, 101, 10)))
"""Held-out tasks of Kevin-32B (arXiv 2507.11948)."""


def held_out_ids(tasks: Sequence[Task], holdout: str | NamedHoldout | FractionHoldout) -> set[str]:
    """Ids of the held-out tasks for the option `holdout`.

    Raises:
        UsageError: a name or pattern matches no task.
    """
    if isinstance(holdout, FractionHoldout):
        return by_fraction(tasks, holdout.fraction, holdout.seed)
    return by_names(tasks, holdout.names) if isinstance(holdout, NamedHoldout) else set()


def by_fraction(tasks: Sequence[Task], fraction: float, seed: int) -> set[str]:
    """Ids of a share of every level, selected by hash: independent of the machine and of the order of `tasks`."""
    levels: dict[int | None, list[str]] = defaultdict(list)
    for task in tasks:
        levels[task.level].append(task.id)
    chosen: set[str] = set()
    for ids in levels.values():
        count = round(fraction * len(ids))
        if fraction > 0 and len(ids) > 1:
            count = max(count, 1)
        chosen.update(sorted(ids, key=lambda id_: hashlib.sha256(f"{seed}:{id_}".encode()).digest())[:count])
    return chosen


def by_names(tasks: Sequence[Task], patterns: Sequence[str]) -> set[str]:
    """Ids of the tasks whose id, id without the source, or name matches one of the patterns.

    Raises:
        UsageError: a pattern matches no task.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        hits = {task.id for task in tasks if any(fnmatch.fnmatchcase(name, pattern) for name in _names_of(task))}
        if not hits:
            known = [name for task in tasks for name in _names_of(task)]
            raise UsageError(f"holdout: no task matches {pattern!r}; {suggestion(pattern, known[:200])}")
        chosen |= hits
    return chosen


def _names_of(task: Task) -> tuple[str, ...]:
    return (task.id, task.id.partition("/")[2], task.name)
