"""The tasks of each step, computed from recipe, seed and task ids only, so a resumed run gets the same tasks.

A batch is computed when it is read, so a plan takes the same time for any number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import overload

from kernelrl_core.errors import UsageError
from kernelrl_core.recipe.schema import TrainSettings
from kernelrl_core.types.seeds import derived_seed

__all__ = ["Batches", "repeats_tasks", "schedule"]


def schedule(task_ids: Sequence[str], settings: TrainSettings, seed: int) -> Batches:
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
    if settings.steps is not None:
        total = settings.steps * settings.tasks_per_step
    else:
        # Exact decimals: 0.1 must not become the nearest binary fraction, which ceil could round up.
        total = math.ceil(Fraction(str(settings.epochs or 1)) * len(task_ids))
    return Batches(task_ids, settings, seed, total)


class Batches(Sequence[list[int]]):
    """The batches of a run, see `schedule`.

    Args:
        total: number of tasks of all batches together, repeated ones included.
    """

    def __init__(self, task_ids: Sequence[str], settings: TrainSettings, seed: int, total: int) -> None:
        self._task_ids, self._seed, self._total = task_ids, seed, total
        self._size, self._shuffle = settings.tasks_per_step, settings.shuffle
        self._stream: list[int] = []
        self._passes = 0

    def __len__(self) -> int:
        return -(-self._total // self._size)

    @overload
    def __getitem__(self, step: int) -> list[int]: ...

    @overload
    def __getitem__(self, step: slice) -> list[list[int]]: ...

    def __getitem__(self, step: int | slice) -> list[int] | list[list[int]]:
        if isinstance(step, slice):
            return [self[index] for index in range(len(self))[step]]
        start = range(len(self))[step] * self._size
        end = min(start + self._size, self._total)
        while len(self._stream) < end:
            self._stream += self._next_pass()
        return self._stream[start:end]

    def _next_pass(self) -> list[int]:
        """The indices of all tasks, in the order of the next pass."""
        order = list(range(len(self._task_ids)))
        if self._shuffle:
            order.sort(key=lambda i: derived_seed(self._seed, "order", self._passes, self._task_ids[i]))
            started = len(self._stream) % self._size
            in_same_batch = set(self._stream[len(self._stream) - started :])
            order = _without_repeats(order, in_same_batch, self._size - started)
        self._passes += 1
        return order


def repeats_tasks(n_tasks: int, settings: TrainSettings) -> bool:
    """Whether a batch has more positions than there are tasks, so that tasks repeat in it."""
    return n_tasks < settings.tasks_per_step


def _without_repeats(order: list[int], taken: set[int], n: int) -> list[int]:
    """`order`, rearranged so that its first `n` elements are not in `taken`, as far as possible."""
    head = [i for i in order if i not in taken][:n]
    chosen = set(head)
    return head + [i for i in order if i not in chosen]
