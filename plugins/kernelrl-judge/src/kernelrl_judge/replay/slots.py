"""Number of calls that a recording holds, each on an input slot of its own."""

from __future__ import annotations

import attrs

__all__ = ["Slots", "planned"]

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
