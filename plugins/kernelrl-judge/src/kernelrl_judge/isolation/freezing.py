"""Stops processes for a while, where others need what they use.

The number of a process that has ended may be that of another one soon. So nothing is done to a process by its number
alone: a process descriptor is opened first, and the process is then still found to be a descendant.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator

__all__ = ["descendants", "ran_s", "suspended"]

_MOST_LOOKS = 8
"""For processes that others start until the last of them is stopped."""
_STANDS_STILL_WITHIN_S = 0.5
_LOOK_AGAIN_S = 5e-5
_SCHEDULED = 2


@contextlib.contextmanager
def suspended(root: int) -> Iterator[None]:
    """Stop all descendants of a process, and let them go on afterwards. What has ended meanwhile is no error."""
    handles: dict[int, int] = {}
    try:
        for _ in range(_MOST_LOOKS):
            new = _opened(root, handles)
            if not new:
                break
            handles |= new
            _send(signal.SIGSTOP, new.values())
            until = time.monotonic() + _STANDS_STILL_WITHIN_S
            # Whoever waits for a processor stops when it gets one; a thread that is in a driver, when it leaves it.
            while any(map(_runs, new)) and time.monotonic() < until:
                time.sleep(_LOOK_AGAIN_S)
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
    # One that ended before it was opened may have left its number to a process that is not one of them.
    still = {*descendants(root)} if opened else set()
    for pid in opened.keys() - still:
        os.close(opened.pop(pid))
    return opened


def _send(number: int, handles: Iterable[int]) -> None:
    for handle in handles:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(handle, number)


def ran_s(root: int) -> dict[int, float]:
    """Processor time that each descendant of a process, with all of its threads, has had so far, in seconds.

    Nothing of one whose time nobody tells.
    """
    found = {}
    for pid in descendants(root):
        with contextlib.suppress(OSError):
            # The clock of another process, as `clock_getcpuclockid` of the C library makes it.
            found[pid] = time.clock_gettime(~pid << 3 | _SCHEDULED)
    return found


def descendants(root: int) -> list[int]:
    """Children of a process, their children, and so on."""
    found, left = [], [root]
    while left:
        # Any thread may have started a process.
        children = [int(child) for place in _threads(left.pop()) for child in _text(f"{place}/children").split()]
        found += children
        left += children
    return found


def _threads(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    return []


def _runs(pid: int) -> bool:
    """Whether a thread of a process has not stopped or ended."""
    states = [_text(f"{thread}/stat").rpartition(")")[2].split()[:1] for thread in _threads(pid)]
    return any(state not in ([], ["T"], ["t"], ["Z"], ["X"]) for state in states)


def _text(path: str) -> str:
    """A file of the kernel's; empty if it is gone."""
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        return file.read()
    return ""
