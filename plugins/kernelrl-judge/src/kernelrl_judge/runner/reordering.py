"""Calls in which CPU threads, or the programs of an interpreted launch, work in another order than usual.

With one thread, or with programs that run one after another, shared data never has the wrong state.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["is_reordered", "reordered"]

_THREADS = 7
"""Does not divide most sizes."""
_OPENMP = ("libgomp.so.1", "libomp.so", "libomp.so.5", "libiomp5.so")
"""Libraries of OpenMP that an extension may use. Torch may have another one."""
_now = False


def is_reordered() -> bool:
    """Whether the current call is reordered."""
    return _now


@contextlib.contextmanager
def reordered(*, threads: bool) -> Iterator[None]:
    """Reorder the calls within the context: programs that run one after another run in a random order.

    Args:
        threads: also have OpenMP use several threads.
    """
    global _now
    threads_before = torch.get_num_threads()
    libraries = _openmp_libraries() if threads else []
    try:
        _now = True
        if threads:
            torch.set_num_threads(max(_THREADS, threads_before))
        for library, count in libraries:
            library.omp_set_num_threads(max(_THREADS, count))
        yield
    finally:
        _now = False
        if threads:
            torch.set_num_threads(threads_before)
        for library, count in libraries:
            library.omp_set_num_threads(count)


def _openmp_libraries() -> list[tuple[Any, int]]:
    """Loaded libraries of OpenMP, and the number of threads of each."""
    found = []
    for name in _OPENMP:
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            found.append((library, int(library.omp_get_max_threads())))
    return found
