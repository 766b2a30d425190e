"""The tasks of each step, computed from recipe, seed and task ids only, so a resumed run gets the same tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from kernelrl_core.errors import UsageError
from kernelrl_core.recipe.schema import TrainSettings
from kernelrl_core.types.seeds import derived_seed

__all__ = ["repeats_tasks", "schedule"]


def schedule(task_ids: Sequence[str], settings: TrainSettings, seed: int) -> list[list[int]]:
    """[step][position]: index into `task_ids` for each task of each step.

    The number of steps is `settings.steps`, or that of `settings.epochs` passes (default 1), in which the last step may
    have fewer tasks. A batch may extend over two passes. It repeats a task only if `tasks_per_step` exceeds the number
    of tasks.

    Raises:
        UsageError: there are no tasks, or both `steps` and `epochs` are set.
    """
    if not task_ids:
        raise UsageError(f"split {settings.split!r} has no tasks")
    if settings.steps is not None and settings.epochs is not None:
        raise UsageError("train.steps and train.epochs exclude each other; remove one of them")
    size = settings.tasks_per_step
    if settings.steps is not None:
        total = settings.steps * size
    else:
        # Exact decimals: 0.1 must not become the nearest binary fraction, which ceil could round up.
        total = math.ceil(Fraction(str(settings.epochs or 1)) * len(task_ids))
    stream: list[int] = []
    epoch = 0
    while len(stream) < total:
        order = list(range(len(task_ids)))
        if settings.shuffle:
            order.sort(key=lambda i: derived_seed(seed, "order", epoch, task_ids[i]))
            started = len(stream) % size
            order = _without_repeats(order, set(stream[len(stream) - started :]), size - started)
        stream += order
        epoch += 1
    return [stream[start : min(start + size, total)] for start in range(0, total, size)]


def repeats_tasks(n_tasks: int, settings: TrainSettings) -> bool:
    """Whether a batch has more positions than there are tasks, so that tasks repeat in it."""
    return n_tasks < settings.tasks_per_step


def _without_repeats(order: list[int], taken: set[int], n: int) -> list[int]:
    """`order`, rearranged so that its first `n` elements are not in `taken`, as far as possible."""
    head = [i for i in order if i not in taken][:n]
    chosen = set(head)
    return head + [i for i in order if i not in chosen]
