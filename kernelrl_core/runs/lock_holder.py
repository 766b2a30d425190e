"""The process that holds the lock of a run, and signals to it and to no other process."""

from __future__ import annotations

import os
import re
import select
import signal
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from kernelrl_core.errors import KernelRLError
from kernelrl_core.runs.directory import RunDir

__all__ = ["LockHolder", "lock_holder"]

_PROC = Path("/proc")
_WRITE_LOCK = re.compile(r"^lock:\s+\d+: FLOCK\s+\S+\s+WRITE (\d+) ", re.MULTILINE)


class LockHolder:
    """A process, referred to by a pidfd: after its end, no other process with its number can get a signal."""

    def __init__(self, pid: int) -> None:
        """Refer to a process.

        Raises:
            OSError: it has ended.
        """
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. Does nothing if the process has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def wait(self, seconds: float) -> bool:
        """Wait until the process has ended. False if it has not after so many seconds."""
        return bool(select.select([self._descriptor], [], [], seconds)[0])

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def lock_holder(run: RunDir) -> LockHolder | None:
    """The process that holds the lock of a run; None if the run is not locked.

    The process is found by its open files, not by the process id that the run has recorded: that id may belong to
    another process by now.

    Raises:
        KernelRLError: the run is locked by a process that is not visible here.
    """
    if not run.locked():
        return None
    for entry in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            # Opened before the check, so that a later process with the same number is never meant.
            holder = LockHolder(int(entry.name))
            if _holds(entry, run.path / "lock"):
                return holder
            holder.close()
    if not run.locked():
        return None
    raise KernelRLError(
        f"run {run.path} is in use by a process that is not visible here",
        fix="repeat this on the machine, in the container and as the user of that process",
        see="run-in-use",
    )


def _holds(process: Path, lock: Path) -> bool:
    """Whether a process has the exclusive lock on a file. A process that inherited the open file has not."""
    wanted = lock.stat()
    for link in (process / "fd").iterdir():
        with suppress(OSError):
            if os.path.samestat(link.stat(), wanted):
                owners = _WRITE_LOCK.findall((process / "fdinfo" / link.name).read_text())
                if process.name in owners:
                    return True
    return False
