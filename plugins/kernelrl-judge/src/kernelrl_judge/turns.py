"""Who may use a device when: work that only has to be right shares it, work that is timed has it alone.

Two files of locks per device, so that judges of different processes, and of different runs of one user, agree. A timed
section that waits closes the gate, and nobody new enters before it is done.
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
        kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
        self._take(self._gate, kind)
        try:
            self._take(self._device, kind)
        except BaseException:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
            raise
        if not alone:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def leave(self, *, alone: bool) -> None:
        fcntl.flock(self._device, fcntl.LOCK_UN)
        if alone:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def _take(self, descriptor: int, kind: int) -> None:
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                self._check()
                time.sleep(_POLL_S)

    @staticmethod
    def _open(path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


class Turn:
    """A turn that is being held."""

    def __init__(self, turns: DeviceTurns, *, alone: bool) -> None:
        self._turns = turns
        self._alone = alone

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let others have the device for a while."""
        self._turns.leave(alone=self._alone)
        try:
            yield
        finally:
            self._turns.enter(alone=self._alone)
