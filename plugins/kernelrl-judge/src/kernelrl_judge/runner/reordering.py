"""Calls in which threads of the processor, or programs of a launch, do their work in another order than in others.

Where one thread adds up, or programs run one after another, nothing that they share is ever in the wrong state.
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
"""Torch has one of its own."""
_now = False


def is_reordered() -> bool:
    """Whether such a call goes on."""
    return _now


@contextlib.contextmanager
def reordered(*, threads: bool) -> Iterator[None]:
    """Have programs of a launch run in another order, where they run one after another.

    Args:
        threads: whether OpenMP's threads are to be more than one.
    """
    global _now
    before, counts = torch.get_num_threads(), _counts() if threads else []
    try:
        _now = True
        if threads:
            torch.set_num_threads(max(_THREADS, before))
        for library, count in counts:
            library.omp_set_num_threads(max(_THREADS, count))
        yield
    finally:
        _now = False
        if threads:
            torch.set_num_threads(before)
        for library, count in counts:
            library.omp_set_num_threads(count)


def _counts() -> list[tuple[Any, int]]:
    """Libraries of OpenMP that are loaded, and how many threads they grant."""
    found = []
    for name in _OPENMP:
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            found.append((library, int(library.omp_get_max_threads())))
    return found
