"""Calls in a row, as judge and runner both make them: the same code on both sides of a comparison."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

__all__ = ["Events", "Window", "made_events", "window"]

Events = tuple[torch.cuda.Event, torch.cuda.Event]

_occupy = getattr(torch._C, "_cuda_sleep", None)
_OCCUPIED_CYCLES = 250_000
"""Of the GPU, an eighth of a millisecond: what the first of many launches takes longer than those after it."""


@attrs.frozen
class Window:
    """What a window of calls gave."""

    outputs: list[Any]
    calls_s: float
    """Host clock from before the first call until the device was idle, in seconds; on a GPU with the time that it was
    kept busy before. A window without calls tells that."""
    _events: Events | None

    def events_s(self) -> float | None:
        """Device events around the calls, in seconds; None on the CPU. To ask takes a while."""
        return self._events[0].elapsed_time(self._events[1]) / 1000 if self._events is not None else None


def made_events(device: str) -> Events | None:
    """Two events for a window: to make them takes a while."""
    if device != "cuda":
        return None
    events = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for event in events:
        # The driver makes one when it is first recorded.
        event.record()
    return events


def window(
    model: Callable[..., Any],
    staged: Sequence[Sequence[Any]],
    device: str,
    keep: Callable[[int, Any], None] | None = None,
    events: Events | None = None,
) -> Window:
    """Call `model` once on each of the staged arguments and wait for the device.

    A GPU is kept busy while the first call is on its way: on one that waits, that way, which the processor makes longer
    or shorter from one window to the next, would count as much as some calls.

    Args:
        device: `cpu` or `cuda`; work on other streams than the current one is waited for, too.
        keep: takes the output of each call at once, in the place of the list of outputs. On the processor memory that
            is not given back between calls would make the calls slower than they are.
        events: to be recorded before and after the calls, where they have been made before.
    """
    outputs: list[Any] = [None] * len(staged)
    events = events or made_events(device)
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
    return Window(outputs, calls_s, events)
