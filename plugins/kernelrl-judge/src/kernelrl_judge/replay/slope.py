"""Time of one call, from windows of k and k/2 calls."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import attrs

__all__ = ["Window", "clock_agrees", "per_call_us", "steady"]

_CLOCK_CHANGE = 0.03
_DISAGREEMENT = 0.05
_COPIES_SHARE = 0.25
_COPIES_SLACK_US = 20.0
_SLACK_US = 150.0
"""What the judge's clock may show beyond the device's in one window: two messages, and the launch of the graph."""


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
    return [abs(window.sm_ghz - usual) <= _CLOCK_CHANGE * usual for window in windows]


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
    beyond_us = [window.host_us - window.whole_us * (1 + _DISAGREEMENT) - _SLACK_US for window in candidate]
    missing_us = [window.whole_us * (1 - _DISAGREEMENT) - window.host_us for window in candidate]
    copies_us = [
        own.copies_us - other.copies_us * (1 + _COPIES_SHARE) - _COPIES_SLACK_US
        for own, other in zip(candidate, reference, strict=True)
    ]
    return all(statistics.median(values) <= 0 for values in (beyond_us, missing_us, copies_us))
