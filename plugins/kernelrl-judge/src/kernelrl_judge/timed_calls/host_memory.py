"""Preparation of host memory for timed calls, in judge and runner alike, and large pages for faster forks.

By default glibc returns freed large allocations, and free memory at the end of its heap, to the operating system. The
next call gets new memory, page by page. Even if glibc keeps freed memory, an aligned allocation may not fit into the
place of the previous one and get new pages at the end of the heap. In both cases the same operator on 1 MiB takes
between 0.1 and 3 ms. Therefore judge and runner keep freed memory while calls are timed, and touch the memory that the
calls of a window may need before the window begins.

Forking and ending a process with torch loaded mostly takes time per page. A process that is forked often should have
its memory in large pages.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["in_large_pages", "keep", "kept", "ready"]

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_MOST_KEPT_BYTES = 1 << 30
_USUALLY_KEPT_BYTES = 32 << 20
_USUAL_MAPS = 65536
_MOST_READY_BYTES = 512 << 20
_SMALL_BYTES = 16 << 10
_PAGE_BYTES = 4096
_LARGE_PAGE_BYTES = 2 << 20
_COLLAPSE = 25
"""`MADV_COLLAPSE` of `madvise`, since Linux 6.1."""
_OWN = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s*(?:\[heap\])?$", re.MULTILINE)
"""An entry of private memory without a file in `/proc/PID/maps`."""


def keep() -> None:
    """Have this process, and those forked from it later, keep the memory that they free."""
    # Allocations with a mapping of their own are always returned when they are freed.
    _set(_MOST_KEPT_BYTES, maps=0)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Have this process keep freed memory within the context, and return it to the operating system at the end."""
    keep()
    try:
        yield
    finally:
        _set(_USUALLY_KEPT_BYTES, maps=_USUAL_MAPS)
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)


def _set(kept_bytes: int, *, maps: int) -> None:
    # Only glibc has `mallopt`.
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_MAX, maps)
        library.mallopt(_M_TRIM_THRESHOLD, kept_bytes)


def ready(sizes_bytes: Iterable[int]) -> None:
    """Allocate, touch and free memory for tensors of these sizes at once, up to 512 MiB and as far as there is any."""
    import torch

    held = []
    left_bytes = _MOST_READY_BYTES
    with contextlib.suppress(RuntimeError, MemoryError):
        for size in sizes_bytes:
            if _SMALL_BYTES <= size <= left_bytes:
                held.append(torch.empty(size, dtype=torch.uint8))
                left_bytes -= size
        for piece in held:
            piece[::_PAGE_BYTES] = 0


def in_large_pages() -> None:
    """Move the memory of this process to large pages, if the system can do that. Takes tenths of a second."""
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for begin, end in _OWN.findall(Path("/proc/self/maps").read_text()):
            first = -(-int(begin, 16) // _LARGE_PAGE_BYTES) * _LARGE_PAGE_BYTES
            available = int(end, 16) - first
            if available >= _LARGE_PAGE_BYTES:
                size = available // _LARGE_PAGE_BYTES * _LARGE_PAGE_BYTES
                library.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), _COLLAPSE)
