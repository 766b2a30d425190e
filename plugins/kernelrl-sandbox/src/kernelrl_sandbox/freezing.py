"""Stops processes for a while, so that they do not disturb others.

A new process may get the number of a process that has ended. So no signal is sent by number alone: a process descriptor
is opened first, and then the process must still be a descendant.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping

__all__ = ["descendants", "longest_wait_s", "ran_s", "suspended", "total_s", "waited_s"]

_MAX_SEARCHES = 8
"""Searches for descendants: until all of them are stopped, they may start others."""
_STOPPED_WITHIN_S = 0.5
_POLL_S = 5e-5
_SCHEDULED = 2


@contextlib.contextmanager
def suspended(root: int) -> Iterator[None]:
    """Stop all descendants of a process, and let them continue afterwards. One that ends meanwhile is no error."""
    handles: dict[int, int] = {}
    try:
        for _ in range(_MAX_SEARCHES):
            new = _opened(root, handles)
            if not new:
                break
            handles |= new
            _send(signal.SIGSTOP, new.values())
            until = time.monotonic() + _STOPPED_WITHIN_S
            # A thread that waits for a CPU core stops when it gets one; a thread in a driver stops when it leaves it.
            while any(map(_runs, new)) and time.monotonic() < until:
                time.sleep(_POLL_S)
        yield
    finally:
        _send(signal.SIGCONT, handles.values())
        for handle in handles.values():
            os.close(handle)


def _opened(root: int, known: Collection[int]) -> dict[int, int]:
    """Process descriptors of the descendants of a process that are not known yet, by number."""
    opened: dict[int, int] = {}
    for pid in descendants(root):
        if pid not in known:
            with contextlib.suppress(OSError):
                opened[pid] = os.pidfd_open(pid)
    # If one ended before it was opened, a process that is no descendant may have its number.
    still_descendants = {*descendants(root)} if opened else set()
    for pid in opened.keys() - still_descendants:
        os.close(opened.pop(pid))
    return opened


def _send(number: int, handles: Iterable[int]) -> None:
    for handle in handles:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(handle, number)


def ran_s(root: int) -> dict[int, float]:
    """CPU time of each descendant of a process, with all of its threads, in seconds.

    Descendants whose time cannot be read are missing.
    """
    found = {}
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            # The number of another process's clock, as `clock_getcpuclockid` of the C library computes it.
            found[pid] = time.clock_gettime(~pid << 3 | _SCHEDULED)
    return found


def waited_s(processes: Iterable[int]) -> dict[int, float]:
    """Time for which each thread of some processes was ready and waited for a processor, in seconds, by its number.

    Threads whose time cannot be read are missing; on a system without `/proc/PID/schedstat` these are all.
    """
    found = {}
    for process in processes:
        for thread in _threads(process):
            fields = _text(f"{thread}/schedstat").split()
            if len(fields) > 1:
                found[int(thread.rpartition("/")[2])] = int(fields[1]) / 1e9
    return found


def longest_wait_s(before_s: Mapping[int, float], after_s: Mapping[int, float]) -> float:
    """Longest time that a thread waited, by its times before and after."""
    return max((now_s - before_s.get(thread, 0.0) for thread, now_s in after_s.items()), default=0.0)


def total_s(before_s: Mapping[int, float], after_s: Mapping[int, float]) -> float:
    """Sum of the times of processes, by their times before and after."""
    return sum(now_s - before_s.get(process, 0.0) for process, now_s in after_s.items())


def descendants(root: int) -> list[int]:
    """Children of a process, their children, and so on."""
    found: list[int] = []
    unvisited = [root]
    while unvisited:
        # Any thread may have started a process.
        threads = _threads(unvisited.pop())
        children = [int(child) for thread in threads for child in _text(f"{thread}/children").split()]
        found += children
        unvisited += children
    return found


def _threads(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    return []


def _runs(pid: int) -> bool:
    """Whether any thread of a process is neither stopped nor ended."""
    states = [_text(f"{thread}/stat").rpartition(")")[2].split()[:1] for thread in _threads(pid)]
    return any(state not in ([], ["T"], ["t"], ["Z"], ["X"]) for state in states)


def _text(path: str) -> str:
    """Text of a file in `/proc`; empty if the file is gone."""
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        return file.read()
    return ""
