"""Host memory that calls are timed with is there before the clock runs, on either side of a speedup alike.

By default glibc gives large allocations, and what is free at the end of its heap, back to the kernel when they are
freed, and a call takes them anew, page by page. Where it keeps them, an aligned allocation may still not fit where the
one before it lay, and takes new pages at the end of the heap. Either way the same operator on 1 MiB takes between 0.1
and 3 ms. So while calls are timed judge and runner keep what they free, and touch what the calls of a window may need
before it begins.

To fork a process with torch loaded, and to end it, is mostly to go through its pages. Who is forked from often has its
memory in large ones.
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
"""Of `madvise`, since Linux 6.1."""
_OWN = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s*(?:\[heap\])?$", re.MULTILINE)
"""Memory of a process that no file stands behind, in its list of maps."""


def keep() -> None:
    """Have this process, and those forked from it, keep what they free."""
    # What is mapped by itself is given back whatever its size.
    _set(_MOST_KEPT_BYTES, maps=0)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Have this process keep what it frees for a while, and then give it back."""
    keep()
    try:
        yield
    finally:
        _set(_USUALLY_KEPT_BYTES, maps=_USUAL_MAPS)
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)


def _set(kept_bytes: int, *, maps: int) -> None:
    # Only glibc has it.
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_MAX, maps)
        library.mallopt(_M_TRIM_THRESHOLD, kept_bytes)


def ready(sizes_bytes: Iterable[int]) -> None:
    """Have memory free and touched for tensors of these sizes at once, as far as there is any."""
    import torch

    held, room = [], _MOST_READY_BYTES
    with contextlib.suppress(RuntimeError, MemoryError):
        for size in sizes_bytes:
            if _SMALL_BYTES <= size <= room:
                held.append(torch.empty(size, dtype=torch.uint8))
                room -= size
        for piece in held:
            piece[::_PAGE_BYTES] = 0


def in_large_pages() -> None:
    """Have what this process has allocated in large pages, where the system can do that. Takes tenths of a second."""
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for begin, end in _OWN.findall(Path("/proc/self/maps").read_text()):
            first = -(-int(begin, 16) // _LARGE_PAGE_BYTES) * _LARGE_PAGE_BYTES
            room = int(end, 16) - first
            if room >= _LARGE_PAGE_BYTES:
                size = room // _LARGE_PAGE_BYTES * _LARGE_PAGE_BYTES
                library.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), _COLLAPSE)
