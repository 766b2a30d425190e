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

__all__ = ["DeviceTurns"]

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
    def shared(self) -> Iterator[None]:
        """Together with others that need no time to be measured."""
        self._take(self._gate, fcntl.LOCK_SH)
        try:
            self._take(self._device, fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._device, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Without anybody else."""
        self._take(self._gate, fcntl.LOCK_EX)
        try:
            self._take(self._device, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._device, fcntl.LOCK_UN)
        finally:
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
