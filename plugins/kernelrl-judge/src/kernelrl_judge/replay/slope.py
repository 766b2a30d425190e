"""The number of calls of a recording, and the time of one call from windows of n and n/2 calls."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import attrs

from kernelrl_judge.limits import LIMITS

__all__ = ["ReplayWindow", "Slots", "charged", "clock_agrees", "per_call_us", "planned", "steady"]

_WORK_US = 200.0
_WORK_BYTES = 1 << 30
"""A window takes at least that time, or moves at least that many bytes, whichever needs fewer calls. A GPU with 80 GB
has enough memory for such windows of twelve concurrent evaluations."""
_MOST_CALLS = 128
_FEWEST_CALLS = 2
_ALONE_US = 1000.0
_BEYOND_CACHE = 2
"""Size of all input slots together, in multiples of the L2 cache: no call finds its inputs in the cache."""
_ALONE_BEYOND_CACHE = 4
"""Bytes that a call moves, in multiples of the L2 cache, from which it needs no other input slot."""
_COPIES_OF_INPUTS = 3
"""The input slots of the runner and of the judge, and the values that are drawn."""
_COPIES_OF_OUTPUTS = 5
"""The recorded outputs of both processes, copies of both, and one more for their comparison."""
_MEMORY_SHARE = 0.25
"""Share of the free memory: intermediate results of a call and other evaluations need memory, too."""


@attrs.frozen
class Slots:
    """Numbers of calls of the two windows whose times are subtracted from each other."""

    calls: int
    half: int
    """Half of `calls`; 0 if there is one window of one call."""
    reduced: bool
    """The device's memory allows fewer calls than wanted."""


def planned(
    *,
    input_bytes: int,
    output_bytes: int,
    call_us: float,
    cache_bytes: int,
    free_bytes: int,
    most_calls: int = _MOST_CALLS,
) -> Slots:
    """The numbers of calls for a recording.

    Args:
        input_bytes: size of the inputs of one call.
        output_bytes: size of its outputs.
        call_us: device time of one call, in microseconds.
        cache_bytes: size of the L2 cache.
        free_bytes: device memory that is free.
        most_calls: maximum number that the messages of the protocol can describe.
    """
    moved = input_bytes + output_bytes
    if moved > _ALONE_BEYOND_CACHE * cache_bytes and call_us >= _ALONE_US:
        return Slots(1, 0, reduced=False)
    by_time = _WORK_US / max(call_us, 0.1)
    by_bytes = _WORK_BYTES / max(moved, 1)
    by_cache = _BEYOND_CACHE * cache_bytes / max(input_bytes, 1)
    wanted = max(_FEWEST_CALLS, min(by_time, by_bytes), by_cache)
    wanted = min(_MOST_CALLS, most_calls, int(wanted) + 1)
    wanted += wanted % 2
    bytes_per_call = _COPIES_OF_INPUTS * input_bytes + _COPIES_OF_OUTPUTS * output_bytes
    fitting = int(free_bytes * _MEMORY_SHARE / max(bytes_per_call, 1))
    calls = min(wanted, fitting - fitting % 2)
    if calls < 2:
        return Slots(1, 0, reduced=True)
    return Slots(calls, calls // 2, reduced=calls < wanted)


@attrs.frozen
class ReplayWindow:
    """Times of one replay of a recording."""

    calls: int
    calls_us: float
    """Device time of the calls."""
    copies_us: float
    """Device time of the copies of outputs after the calls."""
    whole_us: float
    """Device time of clock kernel, calls and copies."""
    host_us: float
    """Time by the judge's clock from the order that opens the gate until the reply."""
    sm_ghz: float
    """SM clock at the beginning of the replay."""


def steady(windows: Sequence[ReplayWindow]) -> list[bool]:
    """Whether the SM clock of each window is within 3 % of the median of all."""
    usual = statistics.median(window.sm_ghz for window in windows)
    return [abs(window.sm_ghz - usual) <= LIMITS.clock_change * usual for window in windows]


def per_call_us(full: ReplayWindow, half: ReplayWindow | None) -> float:
    """Time of one call in microseconds: the slope between windows of n and n/2 calls, in which constant costs cancel.

    Args:
        half: None if one window is so long that constant costs do not matter.
    """
    if half is None:
        return full.calls_us / full.calls
    return max(0.0, full.calls_us - half.calls_us) / (full.calls - half.calls)


def clock_agrees(candidate: Sequence[ReplayWindow]) -> bool:
    """Whether the judge confirms the device times that a runner reports. Candidate code shares the runner's process.

    In the median over the windows, the judge's clock may show up to 5 % less than the device's clock, and up to 5 % and
    the time of the messages more.

    Args:
        candidate: its windows.
    """
    if any(window.whole_us <= 0 or window.calls_us < 0 or window.copies_us < 0 for window in candidate):
        return False
    share = LIMITS.clocks_disagree
    beyond_us = [window.host_us - window.whole_us * (1 + share) - LIMITS.messages_us for window in candidate]
    missing_us = [window.whole_us * (1 - share) - window.host_us for window in candidate]
    return all(statistics.median(values) <= 0 for values in (beyond_us, missing_us))


def charged(candidate: ReplayWindow, reference: ReplayWindow) -> ReplayWindow:
    """The candidate's window, with the time of its copies beyond those of the reference as time of its calls.

    Copies of outputs take longer where an output has another layout than that of the reference, such as a transposed
    view. Without the charge, a runner could also report time of calls as time of copies.

    Args:
        candidate, reference: windows of equal numbers of calls.
    """
    free_us = reference.copies_us * (1 + LIMITS.copies_share) + LIMITS.copies_us
    beyond_us = max(0.0, candidate.copies_us - free_us)
    return attrs.evolve(candidate, calls_us=candidate.calls_us + beyond_us)
