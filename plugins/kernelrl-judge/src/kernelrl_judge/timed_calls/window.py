"""Windows of calls, one call after the other: the same code on both sides of a comparison."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

__all__ = ["CallWindow", "Events", "call_window", "make_events"]

Events = tuple[torch.cuda.Event, torch.cuda.Event]

_occupy = getattr(torch._C, "_cuda_sleep", None)
_OCCUPIED_CYCLES = 250_000
"""Cycles of the GPU, an eighth of a millisecond: the extra time that the first of many launches takes."""


@attrs.frozen
class CallWindow:
    """Outputs and time of a window of calls."""

    outputs: list[Any]
    calls_s: float
    """Host time in seconds from before the first call until the device was idle. On a GPU it includes the time for
    which the GPU was kept busy before the first call; a window without calls measures that time."""
    _events: Events | None

    def events_s(self) -> float | None:
        """Time between the device events around the calls, in seconds; None on the CPU. Reading it takes a while."""
        return self._events[0].elapsed_time(self._events[1]) / 1000 if self._events is not None else None


def make_events(device: str) -> Events | None:
    """Two events for a window; None on the CPU. Making them takes a while."""
    if device != "cuda":
        return None
    events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for event in events:
        # The driver creates an event when it is first recorded.
        event.record()
    return events


def call_window(
    model: Callable[..., Any],
    staged: Sequence[Sequence[Any]],
    device: str,
    keep: Callable[[int, Any], None] | None = None,
    events: Events | None = None,
) -> CallWindow:
    """Call `model` once on each of the staged arguments and wait for the device.

    A GPU is kept busy until the first call is launched. If it were idle, the latency of that launch would count as the
    time of several calls, and the latency varies with the CPU from window to window.

    Args:
        device: `cpu` or `cuda`; work on other streams than the current one is waited for as well.
        keep: takes the number and the output of each call immediately, and `outputs` of the result contains None. On
            the CPU, keeping all outputs until the end would slow down the calls, because each would need new memory.
        events: from `make_events`, recorded before and after the calls. They are made here if missing.
    """
    outputs: list[Any] = [None] * len(staged)
    events = events or make_events(device)
    with torch.no_grad():
        if events is not None:
            if _occupy is not None:
                _occupy(_OCCUPIED_CYCLES)
            events[0].record()
        started = time.perf_counter()
        for index, arguments in enumerate(staged):
            if keep is None:
                outputs[index] = model(*arguments)
            else:
                keep(index, model(*arguments))
        if events is not None:
            events[1].record()
            torch.cuda.synchronize()
        calls_s = time.perf_counter() - started
    return CallWindow(outputs, calls_s, events)
