"""Which tasks each step works on: a function of recipe, seed and task ids alone, so a resumed run sees the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from kernelrl_core.errors import UsageError
from kernelrl_core.recipe.schema import TrainSettings
from kernelrl_core.types.seeds import derived_seed

__all__ = ["repeats_tasks", "schedule"]


def schedule(task_ids: Sequence[str], settings: TrainSettings, seed: int) -> list[list[int]]:
    """[step][position] index into `task_ids`.

    Steps are `settings.steps`, or as many as `settings.epochs` passes need, the last one short when they do not divide.
    A batch may straddle two passes. It never holds a task twice unless there are fewer tasks than places.

    Raises:
        UsageError: no tasks, or both `steps` and `epochs`.
    """
    if not task_ids:
        raise UsageError(f"split {settings.split!r} holds no tasks")
    if settings.steps is not None and settings.epochs is not None:
        raise UsageError("train.steps and train.epochs exclude each other; remove one of them")
    size = settings.tasks_per_step
    if settings.steps is not None:
        places = settings.steps * size
    else:
        # Decimal numbers such as 0.1 are meant as they are written, not as the nearest binary fraction.
        places = math.ceil(Fraction(str(settings.epochs or 1)) * len(task_ids))
    stream: list[int] = []
    epoch = 0
    while len(stream) < places:
        order = list(range(len(task_ids)))
        if settings.shuffle:
            order.sort(key=lambda i: derived_seed(seed, "order", epoch, task_ids[i]))
            started = len(stream) % size
            order = _without_repeats(order, set(stream[len(stream) - started :]), size - started)
        stream += order
        epoch += 1
    return [stream[start : min(start + size, places)] for start in range(0, places, size)]


def repeats_tasks(n_tasks: int, settings: TrainSettings) -> bool:
    """Whether batches must hold a task more than once."""
    return n_tasks < settings.tasks_per_step


def _without_repeats(order: list[int], taken: set[int], places: int) -> list[int]:
    """`order` with its first `places` free of `taken`, as far as that is possible."""
    head = [i for i in order if i not in taken][:places]
    chosen = set(head)
    return head + [i for i in order if i not in chosen]
