"""Runs compilers in a sandbox, with limits of time and memory."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from kernelrl_judge.isolation import sandbox

__all__ = ["Compilers", "OutOfTime", "reached_limit"]

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/opt/rocm")
_DEVICES = ("/dev/null",)
"""A source could include others, which never end."""
_MAX_LOG_BYTES = 1 << 20
_FILE_MIB = 1024
_KILLED = re.compile(r"\b[Kk]ill")
_COUNTED = 0.8
"""Of its limit a process may have had when it is killed."""
_LIMITS = (
    (r"File size limit exceeded|[Ff]ile too large", f"The compiler's output reached its limit of {_FILE_MIB} MiB."),
    (
        r"out of memory|virtual memory exhausted|Cannot allocate memory|bad_alloc|Allocation failed",
        "The compiler reached its limit of {memory_mib} MiB of memory.",
    ),
)
"""What compilers say at a limit, some of them as if it were a fault of their own, and what it means."""


class OutOfTime(Exception):
    """The limit of time was reached; the text is the end of the compiler's output.

    Args:
        waited: whether the limit of wall time was reached, and not that of processor time.
    """

    def __init__(self, text: str = "", *, waited: bool) -> None:
        super().__init__(text)
        self.waited = waited


@attrs.define
class Compilers:
    """How compilers of one build are run: time and memory are limited for all of them together and for each.

    The time that a compiler waits for a processor is given to it besides, until `latest`: how busy a machine is says
    nothing of a candidate. `deadline` and `latest` are on the clock `time.monotonic`.
    """

    readable: Sequence[str]
    """Directories of the toolchain, beside the system's."""
    writable: str
    """The build's own directory."""
    memory_mib: int
    deadline: float
    latest: float
    path: str
    """Search path of the compilers."""
    knows_itself: bool = False
    """Whether they have a `/proc`, to find their own files by; an assembler could read it as well."""

    def extend(self, seconds: float) -> None:
        """Give the build more time."""
        self.deadline += seconds
        self.latest += seconds

    def run(self, argv: Sequence[str], cwd: Path | str) -> tuple[int, str, float]:
        """Run a program in `cwd`; returns its status, what it printed and its processor time in seconds.

        Raises:
            OutOfTime: it did not end in time and was killed with all it started.
        """
        now = time.monotonic()
        left_s = self.deadline - now
        if left_s <= 0:
            raise OutOfTime(waited=now >= self.latest)
        readable = [path for path in (*_SYSTEM, *_DEVICES, *self.readable) if os.path.exists(path)]

        def confine() -> None:
            sandbox.confine(
                memory_mib=self.memory_mib,
                cpu_s=math.ceil(left_s),
                file_mib=_FILE_MIB,
                processes=256,
                readable=readable,
                writable=[self.writable],
                knows_itself=self.knows_itself,
            )

        # Beside the build's other files: what fills the disk is then removed with them.
        with tempfile.TemporaryFile(dir=self.writable) as log:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": self.path, "LC_ALL": "C.UTF-8", "TMPDIR": str(cwd), "HOME": str(cwd)},
                preexec_fn=confine,
            )
            ending = threading.Timer(self.latest - now, _kill, [process.pid])
            ending.start()
            try:
                _, status, usage = os.wait4(process.pid, 0)
            finally:
                ending.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _MAX_LOG_BYTES))
            text = log.read().decode("utf-8", "replace")
        ended = time.monotonic()
        ran_s = usage.ru_utime + usage.ru_stime
        # A limit of processor time, counted by ticks, ends one process, and the compiler then fails that started it.
        killed = process.returncode == 128 + signal.SIGKILL or _KILLED.search(text[-1000:])
        least_s = left_s * (_COUNTED if killed else 1.0)
        if ended >= self.latest or (status and ran_s >= least_s):
            raise OutOfTime(text, waited=ended >= self.latest)
        self.deadline = min(self.latest, self.deadline + max(0.0, ended - now - ran_s))
        return process.returncode, text, ran_s


def reached_limit(log: str, memory_mib: int) -> str:
    """A sentence on the limit that a compiler's log tells of; empty where it tells of none."""
    found = (sentence for pattern, sentence in _LIMITS if re.search(pattern, log))
    return next(found, "").format(memory_mib=memory_mib)


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
