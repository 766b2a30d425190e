"""How many calls the windows of a measurement have."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence

import torch

from kernelrl_judge.device_memory import give_back_spare
from kernelrl_judge.input_indices import FIRST_TIMED
from kernelrl_judge.layouts import leaves_bytes
from kernelrl_judge.reference import Reference
from kernelrl_judge.sharing import extent
from kernelrl_judge.trees import tensors

__all__ = ["find_lengths", "guess_lengths"]

_WINDOW_S = 6e-3
"""Aimed at: waking a process costs tens of microseconds more or less, and on the processor its caches with it."""
_SHORTEST_S = 1.2e-3
"""A window is not shorter if the most calls allow."""
_ENOUGH_CALLS = {"cuda": 128, "cpu": 160}
"""On a GPU hundreds of tensors take longer to stage than to compute."""
_MAX_CALLS = 160
_MOST_TRIES = 6
_LENGTH_SLACK = 0.2
_MAX_SHARED_BYTES = 24 << 30
_FREE_SHARE = 6
"""One part in so many of a GPU's free memory is for inputs and outputs, of each of which there are up to four."""
_LITTLE_SHARE = 200
"""One part in so many of the memory is for the inputs and outputs of a guess: judge and runner each have copies."""
_FEW_CALLS = 16
_GUESS_S = 0.1


def guess_lengths(reference: Reference, make: Callable[[int, int], tuple[float, float]]) -> tuple[int, int]:
    """Calls for the first windows of `find_lengths`, by windows that leave most of a GPU's memory to others.

    Args:
        make: as for `find_lengths`.
    """
    room, little = _room(reference), _little(reference)
    times = make(1, 1)
    little = min(little, math.ceil(_GUESS_S / max(1e-6, *times)))
    if little > 1:
        # What a window takes for itself, and the first call for everything, is no longer most of it.
        times = make(little, little)
    first, second = (max(1, min(room, _wanted(spent_s / little, reference.device))) for spent_s in times)
    return first, second


def find_lengths(
    reference: Reference, make: Callable[[int, int], tuple[float, float]], begin: tuple[int, int] = (1, 1)
) -> tuple[int, int]:
    """Calls per window of the candidate and of the reference, so that each window is long enough.

    The first window of a length allocates, and is slower than the next: a length is found when it was wanted after
    two windows of that length.

    Args:
        make: a round of windows of so many calls of either side, which returns the time of each in seconds.
        begin: calls of the first windows.
    """
    counts, room, alike = begin, _room(reference), 0
    _take_at_once(reference, max(begin))
    fastest = [math.inf, math.inf]
    for _ in range(_MOST_TRIES):
        times = make(*counts)
        fastest = [min(known, spent_s / count) for known, spent_s, count in zip(fastest, times, counts, strict=True)]
        wanted = [max(1, min(room, _wanted(each_s, reference.device))) for each_s in fastest]
        if all(abs(want - count) <= _LENGTH_SLACK * count for want, count in zip(wanted, counts, strict=True)):
            alike += 1
            if alike == 2:
                return counts
            continue
        alike = 0
        if max(wanted) > max(counts):
            _take_at_once(reference, max(wanted))
        counts = (wanted[0], wanted[1])
    make(*counts)
    return counts


def _wanted(each_s: float, device: str) -> int:
    """Calls of a window, if each takes so long."""
    each_s = max(each_s, 1e-7)
    usual = min(_ENOUGH_CALLS[device], math.ceil(_WINDOW_S / each_s))
    return max(usual, math.ceil(_SHORTEST_S / each_s))


def _take_at_once(reference: Reference, calls: int) -> None:
    """Have the device's memory for windows of so many calls in one piece: hundreds of pieces take their time."""
    if reference.device == "cuda":
        inputs = leaves_bytes(reference.inputs(FIRST_TIMED))
        # Of outputs there are the reference's and a place for each; the rest is small.
        count = calls * (inputs + 2 * leaves_bytes(reference.like))
        with contextlib.suppress(torch.OutOfMemoryError):
            torch.empty(count, dtype=torch.uint8, device=reference.device)


def _little(reference: Reference) -> int:
    """Calls of a window of which many judges may have one at once, but no more than are needed to guess."""
    whole = torch.cuda.get_device_properties(0).total_memory
    return max(1, min(_FEW_CALLS, whole // _LITTLE_SHARE // max(1, _each_bytes(_of_call(reference)))))


def _of_call(reference: Reference) -> list[torch.Tensor]:
    return [*tensors(reference.inputs(FIRST_TIMED)), *tensors(reference.like)]


def _each_bytes(found: Sequence[torch.Tensor]) -> int:
    return sum(end - begin for begin, end in map(extent, found))


def _room(reference: Reference) -> int:
    """Most calls whose inputs and outputs are kept at once."""
    found = _of_call(reference)
    each = _each_bytes(found)
    budget = _MAX_SHARED_BYTES
    if reference.device == "cuda":
        give_back_spare()
        budget = min(budget, torch.cuda.mem_get_info()[0] // _FREE_SHARE)
    return max(1, min(_MAX_CALLS, budget // max(1, each), 3000 // (len(found) + 2)))
