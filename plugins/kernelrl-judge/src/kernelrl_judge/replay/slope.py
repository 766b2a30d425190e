"""The calls of a recording's windows: how many, each on an input slot of its own, and the time of one call."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import attrs

from kernelrl_judge.protocol.limits import LIMITS

__all__ = ["Slots", "Window", "clock_agrees", "per_call_us", "planned", "steady"]

_WORK_US = 200.0
_WORK_BYTES = 1 << 30
"""A window has at least so much work, or moves at least so many bytes, whichever is less. Twelve evaluations at once
have room for such windows on a GPU of 80 GB."""
_MOST_CALLS = 128
_FEWEST_CALLS = 2
_ALONE_US = 1000.0
_BEYOND_CACHE = 2
"""All slots together exceed the L2 cache so many times, so that no call finds its inputs there."""
_ALONE_BEYOND_CACHE = 4
"""A call that moves so many times the L2 cache needs no other slot."""
_COPIES_OF_INPUTS = 3
"""The runner's slots, the judge's slots, and the values that are drawn."""
_COPIES_OF_OUTPUTS = 5
"""The recorded outputs of either side, copies of them, and one more for their comparison."""
_MEMORY_SHARE = 0.25
"""Of the free memory: intermediate results of a call need memory, and so do other evaluations."""


@attrs.frozen
class Slots:
    """Calls of the two windows whose times are subtracted from each other."""

    calls: int
    half: int
    """Half of `calls`; 0 where one call is a window of its own."""
    reduced: bool
    """Whether the device's memory allows for fewer calls than wanted."""


def planned(
    *,
    input_bytes: int,
    output_bytes: int,
    call_us: float,
    cache_bytes: int,
    free_bytes: int,
    most_calls: int = _MOST_CALLS,
) -> Slots:
    """The number of calls.

    Args:
        input_bytes: of the inputs of one call.
        output_bytes: of its outputs.
        call_us: device time of one call, in microseconds.
        cache_bytes: size of the L2 cache.
        free_bytes: device memory that is free.
        most_calls: limit of the messages that describe the slots.
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
    each = _COPIES_OF_INPUTS * input_bytes + _COPIES_OF_OUTPUTS * output_bytes
    fitting = int(free_bytes * _MEMORY_SHARE / max(each, 1))
    calls = min(wanted, fitting - fitting % 2)
    if calls < 2:
        return Slots(1, 0, reduced=True)
    return Slots(calls, calls // 2, reduced=calls < wanted)


@attrs.frozen
class Window:
    """One pass of a recording."""

    calls: int
    calls_us: float
    """Device time of the calls."""
    copies_us: float
    """Device time of the copies of outputs after the calls."""
    whole_us: float
    """Device time of clock kernel, calls and copies."""
    host_us: float
    """The judge's clock from the order that opens the gate until the answer."""
    sm_ghz: float


def steady(windows: Sequence[Window]) -> list[bool]:
    """Whether the SM clock of each window is within 3 % of the median of all."""
    usual = statistics.median(window.sm_ghz for window in windows)
    return [abs(window.sm_ghz - usual) <= LIMITS.clock_change * usual for window in windows]


def per_call_us(full: Window, half: Window | None) -> float:
    """Microseconds of one call: the slope between windows of k and k/2 calls, in which constant costs cancel; of one
    window, where it is long against them."""
    if half is None:
        return full.calls_us / full.calls
    return max(0.0, full.calls_us - half.calls_us) / (full.calls - half.calls)


def clock_agrees(candidate: Sequence[Window], reference: Sequence[Window]) -> bool:
    """Whether the judge confirms the device times that a runner reports; candidate code shares its process.

    By the median over the windows, the judge's clock may show 5 % less than the device's, and 5 % and what messages
    take more. Copies of outputs may take 25 % and 20 us longer than those of the reference, which has as many: what is
    reported as copies is not reported as calls.

    Args:
        candidate, reference: windows of either side, by turns of equal numbers of calls.
    """
    if any(window.whole_us <= 0 or window.calls_us < 0 or window.copies_us < 0 for window in candidate):
        return False
    share = LIMITS.clocks_disagree
    beyond_us = [window.host_us - window.whole_us * (1 + share) - LIMITS.messages_us for window in candidate]
    missing_us = [window.whole_us * (1 - share) - window.host_us for window in candidate]
    copies_us = [
        own.copies_us - other.copies_us * (1 + LIMITS.copies_share) - LIMITS.copies_us
        for own, other in zip(candidate, reference, strict=True)
    ]
    return all(statistics.median(values) <= 0 for values in (beyond_us, missing_us, copies_us))
