"""Calls in which CPU threads, or the programs of an interpreted launch, work in another order than usual.

With one thread, or with programs that run one after another, shared data never has the wrong state.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["is_reordered", "most_different", "reordered"]

_THREADS = (16, 7, 16, 2, 16, 4, 16, 3)
"""Threads of repeated calls. On few cores more threads than cores interrupt each other."""
_REPEATED_S = 0.6
"""CPU time of repeated calls."""
_MAX_REPEATED_S = 4.0
"""Wall time of repeated calls, on a machine that is busy with other programs."""
_MAX_REPEATED = 512
_CERTAIN = 0.02
"""Difference that no order of sums explains."""
_OPENMP = ("libgomp.so.1", "libomp.so", "libomp.so.5", "libiomp5.so")
"""Libraries of OpenMP that an extension may use. Torch may have another one."""
_now = False


def is_reordered() -> bool:
    """Whether the current call is reordered."""
    return _now


@contextlib.contextmanager
def reordered(*, threads: int) -> Iterator[None]:
    """Reorder the calls within the context: programs that run one after another run in a random order.

    Args:
        threads: number of threads of OpenMP; 0: as many as before.
    """
    global _now
    threads_before = torch.get_num_threads()
    libraries = _openmp_libraries() if threads else []
    try:
        _now = True
        if threads:
            torch.set_num_threads(threads)
        for library, _ in libraries:
            library.omp_set_num_threads(threads)
        yield
    finally:
        _now = False
        if threads:
            torch.set_num_threads(threads_before)
        for library, count in libraries:
            library.omp_set_num_threads(count)


def most_different(call: Callable[[], Any], output: Any) -> Any:
    """Make a call with other numbers of threads for a while; returns the output that differs most from a given one.

    Threads that share data without order make a wrong output in few of many calls.

    Args:
        output: of the same call; nothing is done if it is no tensor.
    """
    if type(output) is not torch.Tensor or not output.numel():
        return output
    first = worst = output.clone()
    largest = 0.0
    started, ran_before = time.monotonic(), time.process_time()
    for number in range(_MAX_REPEATED):
        with reordered(threads=_THREADS[number % len(_THREADS)]):
            other = call()
        if type(other) is not torch.Tensor or other.shape != first.shape or other.dtype is not first.dtype:
            return other
        found = _difference(first, other)
        if found > largest:
            largest, worst = found, other.clone()
        ran_s, spent_s = time.process_time() - ran_before, time.monotonic() - started
        if largest > _CERTAIN or ran_s > _REPEATED_S or spent_s > _MAX_REPEATED_S:
            break
    return worst


def _difference(first: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference of two outputs, as a share of the largest number; infinite where one is not finite."""
    if torch.equal(first, other):
        return 0.0
    if not first.is_floating_point():
        return math.inf
    want, got = first.double(), other.double()
    differs = (want != got) & ~(want.isnan() & got.isnan())
    if not bool(differs.any()):
        return 0.0
    if not bool((want.isfinite() & got.isfinite())[differs].all()):
        return math.inf
    size = float(torch.where(want.isfinite(), want, 0.0).abs().max())
    return float((got - want)[differs].abs().max()) / max(size, 1e-30)


def _openmp_libraries() -> list[tuple[Any, int]]:
    """Loaded libraries of OpenMP, and the number of threads of each."""
    found = []
    for name in _OPENMP:
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            found.append((library, int(library.omp_get_max_threads())))
    return found
