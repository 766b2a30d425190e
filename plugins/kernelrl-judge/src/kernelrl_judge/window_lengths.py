"""How many calls the windows of a measurement have."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import torch

from kernelrl_judge.layouts import leaves_bytes
from kernelrl_judge.reference import Reference
from kernelrl_judge.sharing import extent
from kernelrl_judge.trees import tensors

__all__ = ["find_lengths"]

_WINDOW_S = 6e-3
"""Aimed at: waking a process costs tens of microseconds more or less, and on the processor its caches with it."""
_SHORTEST_S = 1.2e-3
"""A window is not shorter if the most calls allow."""
_ENOUGH_CALLS = {"cuda": 96, "cpu": 160}
"""On a GPU hundreds of tensors take longer to stage than to compute."""
_MAX_CALLS = 160
_MOST_TRIES = 6
_LENGTH_SLACK = 0.2
_MAX_SHARED_BYTES = 16 << 30


def find_lengths(reference: Reference, make: Callable[[int, int], tuple[float, float]]) -> tuple[int, int]:
    """Calls per window of the candidate and of the reference, so that each window is long enough.

    The first window of a length allocates, and is slower than the next: a length is found when it was wanted after
    two windows of that length.

    Args:
        make: a round of windows of so many calls of either side, which returns the time of each in seconds.
    """
    counts, room, alike = (1, 1), _room(reference), 0
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
        inputs = leaves_bytes(reference.inputs(reference.first_timed_input))
        # Of outputs there are the reference's and a place for each; the rest is small.
        count = calls * (inputs + 2 * leaves_bytes(reference.like))
        with contextlib.suppress(torch.OutOfMemoryError):
            torch.empty(count, dtype=torch.uint8, device=reference.device)


def _room(reference: Reference) -> int:
    """Most calls whose inputs and outputs are kept at once."""
    found = [*tensors(reference.inputs(reference.first_timed_input)), *tensors(reference.like)]
    each = 0
    for tensor in found:
        begin, end = extent(tensor)
        each += end - begin
    budget = _MAX_SHARED_BYTES
    if reference.device == "cuda":
        budget = min(budget, torch.cuda.mem_get_info()[0] // 8)
    return max(1, min(_MAX_CALLS, budget // max(1, each), 3000 // (len(found) + 2)))
