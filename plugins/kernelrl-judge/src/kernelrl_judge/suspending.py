"""Stops processes for a while, where others need what they use."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

__all__ = ["Standing", "descendants", "suspended"]

_MOST_LOOKS = 4
_SETTLED_S = 0.5
_THREADS_SETTLED_S = 2e-3
_LOOK_S = 5e-5
_MOVED_NS = 200_000


class Standing:
    """Processes that stand still."""

    def __init__(self, pids: set[int]) -> None:
        until = time.monotonic() + _SETTLED_S
        # Whoever waits for a processor stops when it gets one.
        while any(_runs(f"/proc/{pid}") for pid in pids) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        threads = [thread for pid in pids for thread in _threads(pid)]
        until = time.monotonic() + _THREADS_SETTLED_S
        while (running := {thread for thread in threads if _runs(thread)}) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        # A thread that is in a driver stops when it leaves it, whenever that is.
        self._ran_ns = {thread: _ran_ns(thread) for thread in threads if thread not in running}

    def moved(self) -> bool:
        """Whether a thread ran all the same, because something woke it that could not be stopped."""
        return any(_ran_ns(thread) > ran_ns + _MOVED_NS for thread, ran_ns in self._ran_ns.items())


@contextlib.contextmanager
def suspended(root: int) -> Iterator[Standing]:
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
        yield Standing(stopped)
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


def _threads(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    return []


def _runs(place: str) -> bool:
    """Whether a process, by its first thread, or a thread does."""
    with contextlib.suppress(OSError), open(f"{place}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] not in "TtZX"
    return False


def _ran_ns(thread: str) -> int:
    """Processor time of a thread; 0 where nobody tells."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"{thread}/schedstat") as file:
        return int(file.read().split()[0])
    return 0


def _signal(pids: list[int] | set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
