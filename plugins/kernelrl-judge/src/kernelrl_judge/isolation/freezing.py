"""Stops processes for a while, where others need what they use.

Who has been stopped can be woken up: a timer of the kernel may send SIGCONT. Nothing prevents that, so it is looked for
afterwards. A process stands still when a thread of it does or a stop is still to reach it; a thread that stands still
is given no turn on a processor; and nobody who stands still starts threads or processes.

The number of a process that has ended may be that of another one soon. So nothing is done to a process by its number
alone: a process descriptor is opened first, and the process is then still found to be a descendant.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Iterable, Iterator

import attrs

__all__ = ["Held", "Standing", "descendants", "ran_s", "suspended"]

_MOST_LOOKS = 8
_SETTLED_S = 0.5
_THREADS_SETTLED_S = 2e-3
_LOOK_S = 5e-5
_STILL_S = 1e-4
_MOVED_NS = 10_000
"""What a thread may take that was to stop and lost its processor in between: a few microseconds of the kernel's."""
_DOUBTS = 3
_DOUBT_S = 1e-3
_EXITING = 0x4
_LONGEST_FILE = 1 << 16
_SCHEDULED = 2
_STOP_BIT = 1 << (signal.SIGSTOP - 1)
_PENDING = re.compile(r"^ShdPnd:\s*([0-9a-f]+)$", re.MULTILINE)


@attrs.frozen
class _Ran:
    """What a thread had of processors."""

    time_ns: int
    turns: int


class Held:
    """Descendants of a process by process descriptors, which mean no other process later. Close it."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._handles: dict[int, int] = {}

    @property
    def pids(self) -> set[int]:
        return {*self._handles}

    def find(self) -> list[int]:
        """Open those that are there and not open yet; returns their numbers."""
        opened: dict[int, int] = {}
        for pid in descendants(self._root):
            if pid not in self._handles:
                with contextlib.suppress(OSError):
                    opened[pid] = os.pidfd_open(pid)
        # One that ended before it was opened may have left its number to a process that is not one of them.
        still = {*descendants(self._root)} if opened else set()
        for pid in opened.keys() - still:
            os.close(opened.pop(pid))
        self._handles |= opened
        return [*opened]

    def lives(self, pid: int) -> bool:
        """Whether a number still means the process that was opened."""
        return not select.select([self._handles[pid]], [], [], 0)[0]

    def signal(self, pids: Iterable[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._handles[pid], number)

    def close(self) -> None:
        while self._handles:
            os.close(self._handles.popitem()[1])


class Standing:
    """Descendants of a process that stand still."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._held = Held(root)
        self._ran: dict[str, _Ran] = {}
        self._known: set[str] = set()
        self._outrun = False

    def stop(self) -> None:
        """Stop all there are, and wait until they stand still."""
        for _ in range(_MOST_LOOKS):
            # They may start others until the last of them is stopped.
            new = self._held.find()
            if not new:
                break
            self._held.signal(new, signal.SIGSTOP)
            self._settle(new)
        else:
            self._outrun = any(pid not in self.pids for pid in descendants(self._root))
        self._remember()

    @property
    def pids(self) -> set[int]:
        return self._held.pids

    def go_on(self) -> None:
        """Let all go on that were stopped."""
        self._held.signal(self.pids, signal.SIGCONT)
        self._held.close()

    def _settle(self, pids: list[int]) -> None:
        until = time.monotonic() + _SETTLED_S
        # Whoever waits for a processor stops when it gets one.
        while any(_runs(f"/proc/{pid}") for pid in pids) and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def _remember(self) -> None:
        until = time.monotonic() + _THREADS_SETTLED_S
        while True:
            threads = [thread for pid in self.pids for thread in _threads(pid)]
            still = {thread: _ran(thread) for thread in threads if not _runs(thread)}
            # What a thread has taken is known when it has left its processor, a moment after it is said to stop.
            if (len(still) == len(threads) and still == self._ran) or time.monotonic() > until:
                break
            self._ran = still
            time.sleep(_STILL_S)
        # A thread that is in a driver stops when it leaves it, whenever that is.
        self._ran, self._known = still, set(threads)

    def moved(self) -> bool:
        """Whether something ran all the same, because it was woken up or could not be stopped."""
        if self._outrun or any(map(_goes_on, self.pids)):
            return True
        for thread, before in self._ran.items():
            now = _ran(thread)
            turns, spent_ns = now.turns - before.turns, now.time_ns - before.time_ns
            if turns > 1 or (turns == 1 and spent_ns > _MOVED_NS):
                return True
        places = [thread for pid in self.pids for thread in _threads(pid) if thread not in self._known]
        places += [f"/proc/{pid}" for pid in descendants(self._root) if pid not in self.pids]
        return not all(map(_ended, places))


@contextlib.contextmanager
def suspended(root: int) -> Iterator[Standing]:
    """Stop all descendants of a process, and let them go on afterwards. What has ended meanwhile is no error."""
    standing = Standing(root)
    try:
        standing.stop()
        yield standing
    finally:
        standing.go_on()


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
        children = _children(left.pop())
        found += children
        left += children
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    # Any thread may have started a process.
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += map(int, _text(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _threads(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return [f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task")]
    return []


def _goes_on(pid: int) -> bool:
    """Whether a process that was stopped has been let go on since; not where nobody tells."""
    for doubt in range(_DOUBTS):
        # Between the stop that reaches a process and the thread that then stands still is a moment.
        time.sleep(_DOUBT_S if doubt else 0)
        threads = _threads(pid)
        if any(_stat(thread)[:1] in (["T"], ["t"]) for thread in threads) or all(map(_ended, threads)):
            return False
        with contextlib.suppress(OSError):
            pending = _PENDING.search(_text(f"/proc/{pid}/status"))
            if pending is not None and not int(pending[1], 16) & _STOP_BIT:
                continue
        return False
    return True


def _stat(place: str) -> list[str]:
    """State of a process, by its first thread, or of a thread, and what follows; nothing if it is gone."""
    with contextlib.suppress(OSError):
        return _text(f"{place}/stat").rpartition(")")[2].split()
    return []


def _runs(place: str) -> bool:
    return _stat(place)[:1] not in ([], ["T"], ["t"], ["Z"], ["X"])


def _ended(place: str) -> bool:
    """Whether it is gone or about to."""
    facts = _stat(place)
    return not facts or facts[0] in "ZX" or bool(int(facts[6]) & _EXITING)


def _ran(thread: str) -> _Ran:
    """Zeros where nobody tells."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        time_ns, _, turns = map(int, _text(f"{thread}/schedstat").split()[:3])
        return _Ran(time_ns, turns)
    return _Ran(0, 0)


def _text(path: str) -> str:
    """A short file of the kernel's. Objects of files would take most of the time of the hundreds that are read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _LONGEST_FILE).decode("ascii", "replace")
    finally:
        os.close(descriptor)
