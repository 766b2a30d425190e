"""Settings of a process that loading a candidate, or calling it, should leave as they are.

The functions that read them are taken before any candidate is loaded, but for those of the standard library that
`kernelrl_judge.own_code` puts back.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # that of signal compares a handler with numbers
import gc
import locale
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["DRAWN", "OF_ORDERS", "changed", "reading"]

Settings = dict[str, Any]

DRAWN = frozenset({"numbers drawn by random", "numbers drawn by numpy"})
"""What only loading is compared by: calls may draw."""
OF_ORDERS = frozenset({"the seed of torch", "the garbage collector"})
"""What the runner itself changes between its orders."""
_SIGNALS = ("SIGINT", "SIGTERM", "SIGALRM", "SIGSEGV", "SIGFPE", "SIGCHLD", "SIGUSR1")


def reading() -> Callable[[], Settings]:
    """A function that reads the settings of this thread and its process."""
    import numpy
    import torch

    categories, smallest, drawn_by_numpy = locale.LC_ALL, sys.float_info.min, numpy.random.get_state
    handler, signals = _signal.getsignal, [getattr(signal, name) for name in _SIGNALS]
    readers: dict[str, Callable[[], Any]] = {
        "gradients": torch.is_grad_enabled,
        "inference mode": torch.is_inference_mode_enabled,
        "the number of threads": torch.get_num_threads,
        "the default dtype": torch.get_default_dtype,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "the precision of products": torch.get_float32_matmul_precision,
        "denormal numbers or the rounding of the processor": lambda: _arithmetic(1.0, 2.0**-53, smallest),
        "the locale": lambda: locale.setlocale(categories),
        "handlers of signals": lambda: [*map(handler, signals)],
        "numbers drawn by random": random.getstate,
        "numbers drawn by numpy": lambda: _drawn(drawn_by_numpy(legacy=True)),
        "the seed of torch": torch.initial_seed,
        "the garbage collector": lambda: (gc.isenabled(), gc.get_threshold()),
    }
    pairs = tuple(readers.items())
    return lambda: {name: read() for name, read in pairs}


def changed(before: Settings, after: Settings, *, without: frozenset[str] = frozenset()) -> list[str]:
    """Names of the settings that differ."""
    return [name for name, value in before.items() if name not in without and not _same(value, after[name])]


def _same(before: Any, after: Any) -> bool:
    # Whose `__eq__` a candidate may have written, those stand in lists.
    if isinstance(before, list):
        return [*map(id, before)] == [*map(id, after)]
    return bool(before == after)


def _arithmetic(one: float, half_a_bit: float, smallest: float) -> tuple[bool, ...]:
    """What differs where sums are rounded otherwise, or denormal numbers are zeros."""
    return one + half_a_bit > one, -one - half_a_bit < -one, one - half_a_bit / 4 < one, smallest / 4 > 0.0


def _drawn(state: Any) -> tuple[Any, ...]:
    return state[1].tobytes(), *state[2:]
