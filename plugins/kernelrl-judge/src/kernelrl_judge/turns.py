"""Who may use a device when: work that only has to be right shares it, work that is timed has it alone.

Files of locks per device, so that judges of different processes, and of different runs of one user, agree. A timed
section that waits closes the gate, and nobody new enters before it is done. For a while it leaves the gate open when
somebody inside says that it takes long: a candidate that hangs does not make everybody wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["DeviceTurns", "Turn"]

_POLL_S = 0.002
_POLITE_S = 3.0
"""How long a timed section lets others in while somebody takes long."""
_OPEN_S = 0.1


class DeviceTurns:
    """The locks of one device.

    Args:
        device: name that is the same in every process, such as a GPU's UUID or `cpu`.
        check: called while waiting; what it raises ends the wait.
    """

    def __init__(self, device: str, check: Callable[[], None]) -> None:
        directory = Path(tempfile.gettempdir()) / f"kernelrl-{os.getuid()}"
        directory.mkdir(mode=0o700, exist_ok=True)
        self._gate = self._open(directory / f"{device}.gate")
        self._device = self._open(directory / f"{device}.turn")
        self._slow = self._open(directory / f"{device}.slow")
        self._check = check

    @contextlib.contextmanager
    def shared(self) -> Iterator[Turn]:
        """Together with others that need no time to be measured."""
        self.enter(alone=False)
        try:
            yield Turn(self, alone=False)
        finally:
            self.leave(alone=False)

    @contextlib.contextmanager
    def alone(self) -> Iterator[Turn]:
        """Without anybody else."""
        self.enter(alone=True)
        try:
            yield Turn(self, alone=True)
        finally:
            self.leave(alone=True)

    def enter(self, *, alone: bool) -> None:
        polite_until = time.monotonic() + _POLITE_S
        while not self._enter(polite_until if alone else None):
            open_until = time.monotonic() + _OPEN_S
            while time.monotonic() < open_until:
                self._wait()

    def leave(self, *, alone: bool) -> None:
        fcntl.flock(self._slow, fcntl.LOCK_UN)
        fcntl.flock(self._device, fcntl.LOCK_UN)
        if alone:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def say_slow(self) -> None:
        """Tell others that the shared turn of this process will last, until it is left."""
        fcntl.flock(self._slow, fcntl.LOCK_SH)

    def _enter(self, polite_until: float | None) -> bool:
        """Enter, alone if there is a time until which to be polite; False if somebody inside is slow before that."""
        kind = fcntl.LOCK_SH if polite_until is None else fcntl.LOCK_EX
        while not _try(self._gate, kind):
            self._wait()
        inside = False
        try:
            while not (inside := _try(self._device, kind)):
                if polite_until is not None and time.monotonic() < polite_until and self._somebody_is_slow():
                    return False
                self._wait()
        finally:
            if polite_until is None or not inside:
                fcntl.flock(self._gate, fcntl.LOCK_UN)
        return True

    def _somebody_is_slow(self) -> bool:
        free = _try(self._slow, fcntl.LOCK_EX)
        if free:
            fcntl.flock(self._slow, fcntl.LOCK_UN)
        return not free

    def _wait(self) -> None:
        self._check()
        time.sleep(_POLL_S)

    @staticmethod
    def _open(path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Turn:
    """A turn that is being held."""

    def __init__(self, turns: DeviceTurns, *, alone: bool) -> None:
        self._turns = turns
        self._alone = alone

    def say_slow(self) -> None:
        """Tell others that a shared turn will last."""
        if not self._alone:
            self._turns.say_slow()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let others have the device for a while."""
        self._turns.leave(alone=self._alone)
        try:
            yield
        finally:
            self._turns.enter(alone=self._alone)
