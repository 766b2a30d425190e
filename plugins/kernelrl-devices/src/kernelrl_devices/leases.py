"""Device leases: exclusive for timed work, shared for all other work on a device.

Leases are lock files per device in one directory, so they hold across processes and runs that use this directory. While
a timed section waits, no new shared lease is granted. Waiting timed sections follow one another, so the device is
drained once for several. A shared request that waited too long is served before them, together with all other shared
requests. If a holder reports that it is slow, timed sections admit further shared requests for a while, so that one
hanging candidate does not block the device.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["DeviceLease", "HeldLease", "Turn", "gpu_device_name"]

_POLL_S = 0.002
_TURN_POLL_S = 0.01
_POLITE_S = 3.0
"""Seconds for which a timed section admits shared requests while a holder is slow."""
_OPEN_S = 0.1
_PATIENCE_S = 1.5
"""Seconds that a shared request waits for timed sections. Draining the device once costs about a tenth of this."""


def gpu_device_name(uuid: str) -> str:
    """Device name of a GPU for `DeviceLease`, the same in every process.

    Args:
        uuid: UUID reported by the driver, or the GPU's name if the driver reports none.
    """
    return f"gpu-{uuid}".replace(" ", "_").replace("/", "_")


class Turn:
    """One of few turns to do something on this machine, held until `end`, or until this process and its forks end.

    A process that hangs with its turn must not stop the others: after `patience_s` they go on without one.

    Args:
        directory: existing directory of the lock files. No other user may write to it.
        name: of the work.
        count: number of turns.
        patience_s: longest wait.
    """

    def __init__(self, directory: Path, name: str, count: int, patience_s: float) -> None:
        until = time.monotonic() + patience_s
        numbers = random.sample(range(count), count)
        places = [_open(directory / f"{name}.{number}") for number in numbers]
        self.descriptor: int | None = None
        """Holds the turn; None: there is none."""
        while self.descriptor is None and time.monotonic() < until:
            self.descriptor = next((place for place in places if _try(place, fcntl.LOCK_EX)), None)
            if self.descriptor is None:
                time.sleep(_TURN_POLL_S)
        for place in places:
            if place != self.descriptor:
                os.close(place)

    def end(self) -> None:
        """Give the turn to another process, also where forks have the descriptor."""
        if self.descriptor is not None:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            os.close(self.descriptor)
            self.descriptor = None


class DeviceLease:
    """Leases of one device.

    Args:
        directory: existing directory of the lock files. No other user may write to it.
        device: name that is the same in every process, such as a GPU's UUID or `cpu`.
        check: called repeatedly while waiting; its exceptions end the wait.
    """

    def __init__(self, directory: Path, device: str, check: Callable[[], None] = lambda: None) -> None:
        self._waiting = _open(directory / f"{device}.waiting")
        self._device = _open(directory / f"{device}.turn")
        self._impatient = _open(directory / f"{device}.impatient")
        self._slow = _open(directory / f"{device}.slow")
        self._asking = _open(directory / f"{device}.asking")
        self.check = check
        """Called repeatedly while waiting; its exceptions end the wait."""

    def close(self) -> None:
        """End the lease, and close its files."""
        for lock in (self._waiting, self._device, self._impatient, self._slow, self._asking):
            os.close(lock)

    @contextlib.contextmanager
    def shared(self) -> Iterator[HeldLease]:
        """Lease for untimed work, shared with other untimed work."""
        self.enter(alone=False)
        try:
            yield HeldLease(self, alone=False)
        finally:
            self.leave()

    @contextlib.contextmanager
    def alone(self) -> Iterator[HeldLease]:
        """Exclusive lease for timed work."""
        self.enter(alone=True)
        try:
            yield HeldLease(self, alone=True)
        finally:
            self.leave()

    def enter(self, *, alone: bool) -> None:
        """Wait for the lease. Blocks the thread.

        Args:
            alone: exclusive, for timed work; otherwise shared.
        """
        if alone:
            self._enter_alone()
        else:
            self._enter_shared()

    def leave(self) -> None:
        """End the lease."""
        for lock in (self._slow, self._impatient, self._device):
            fcntl.flock(lock, fcntl.LOCK_UN)

    def say_slow(self) -> None:
        """Report that this process holds its shared lease for long. The report ends with the lease."""
        fcntl.flock(self._slow, fcntl.LOCK_SH)

    def timed_section_waits(self) -> bool:
        """Whether timed work waits for the end of shared leases."""
        return self._is_held(self._waiting)

    def _enter_shared(self) -> None:
        impatient_from, impatient = time.monotonic() + _PATIENCE_S, False
        try:
            while not (self._may_share(impatient) and _try(self._device, fcntl.LOCK_SH)):
                self._wait()
                if not impatient and time.monotonic() > impatient_from:
                    # Held until the lease ends, so that other shared requests are admitted, too.
                    impatient = _try(self._impatient, fcntl.LOCK_SH)
        except BaseException:
            self.leave()
            raise

    def _may_share(self, impatient: bool) -> bool:
        return impatient or not self._is_held(self._waiting) or self._is_held(self._impatient)

    def _enter_alone(self) -> None:
        polite_until = time.monotonic() + _POLITE_S
        while not self._entered_alone(polite_until):
            open_until = time.monotonic() + _OPEN_S
            while time.monotonic() < open_until:
                self._wait()

    def _entered_alone(self, polite_until: float) -> bool:
        """Block new shared leases and enter. False if a holder is slow and `polite_until` has not passed."""
        while not _try(self._waiting, fcntl.LOCK_SH):
            self._wait()
        try:
            while self._is_held(self._impatient) or not _try(self._device, fcntl.LOCK_EX):
                if time.monotonic() < polite_until and self._is_held(self._slow):
                    return False
                self._wait()
        finally:
            fcntl.flock(self._waiting, fcntl.LOCK_UN)
        return True

    def _is_held(self, lock: int) -> bool:
        """True if a process holds the lock. The test takes the lock for a moment. `_asking` serialises tests, so that
        no process mistakes another test for a holder."""
        fcntl.flock(self._asking, fcntl.LOCK_EX)
        try:
            free = _try(lock, fcntl.LOCK_EX)
            if free:
                fcntl.flock(lock, fcntl.LOCK_UN)
        finally:
            fcntl.flock(self._asking, fcntl.LOCK_UN)
        return not free

    def _wait(self) -> None:
        self.check()
        time.sleep(_POLL_S)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class HeldLease:
    """A lease while it is held."""

    def __init__(self, leases: DeviceLease, *, alone: bool) -> None:
        self._leases = leases
        self._alone = alone

    def say_slow(self) -> None:
        """Report that this shared lease lasts long."""
        if not self._alone:
            self._leases.say_slow()

    def keeps_timed_waiting(self) -> bool:
        """True if a timed section waits for the end of this shared lease."""
        return not self._alone and self._leases.timed_section_waits()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Release the device inside the `with` block and lease it again afterwards."""
        self._leases.leave()
        try:
            yield
        finally:
            self._leases.enter(alone=self._alone)
