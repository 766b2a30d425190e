"""Calls in a row, as judge and runner both make them: the same code on both sides of a comparison."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

__all__ = ["Window", "window"]


@attrs.frozen
class Window:
    """What a window of calls gave."""

    outputs: list[Any]
    calls_s: float
    """Host clock from before the first call until the device was idle, in seconds."""
    events_s: float | None
    """Device events around the calls, in seconds; None on the CPU."""


def window(
    model: Callable[..., Any],
    staged: Sequence[Sequence[Any]],
    device: str,
    keep: Callable[[int, Any], None] | None = None,
) -> Window:
    """Call `model` once on each of the staged arguments and wait for the device.

    Args:
        device: `cpu` or `cuda`; work on other streams than the current one is waited for, too.
        keep: takes the output of each call at once, in the place of the list of outputs. On the processor memory that
            is not given back between calls would make the calls slower than they are.
    """
    outputs: list[Any] = [None] * len(staged)
    on_gpu = device == "cuda"
    with torch.no_grad():
        if on_gpu:
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
        started = time.perf_counter()
        for index, arguments in enumerate(staged):
            if keep is None:
                outputs[index] = model(*arguments)
            else:
                keep(index, model(*arguments))
        if on_gpu:
            last.record()
            torch.cuda.synchronize()
        calls_s = time.perf_counter() - started
    return Window(outputs, calls_s, first.elapsed_time(last) / 1000 if on_gpu else None)
