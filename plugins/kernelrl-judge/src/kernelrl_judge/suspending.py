"""Stops processes for a while, where others need what they use."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

__all__ = ["descendants", "suspended"]

_MOST_LOOKS = 4


@contextlib.contextmanager
def suspended(root: int) -> Iterator[None]:
    """Stop all descendants of a process, and let them go on afterwards. What has ended meanwhile is no error."""
    stopped: set[int] = set()
    try:
        for _ in range(_MOST_LOOKS):
            # They may start others until the last of them is stopped.
            new = [pid for pid in descendants(root) if pid not in stopped]
            if not new:
                break
            stopped.update(new)
            _signal(new, signal.SIGSTOP)
        yield
    finally:
        _signal(stopped, signal.SIGCONT)


def descendants(root: int) -> list[int]:
    """Children of a process, their children, and so on."""
    found, left = [], [root]
    while left:
        children = _children(left.pop())
        found += children
        left += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    # Any thread may have started a process.
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def _signal(pids: list[int] | set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
