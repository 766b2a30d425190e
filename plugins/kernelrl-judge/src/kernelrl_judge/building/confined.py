"""Running a compiler where it can do no harm."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from kernelrl_judge import sandbox

__all__ = ["Compilers", "OutOfTime", "reached_limit"]

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/opt/rocm")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_MAX_LOG_BYTES = 1 << 20
_FILE_MIB = 1024
_LIMITS = (
    (r"File size limit exceeded|[Ff]ile too large", f"The compiler's output reached its limit of {_FILE_MIB} MiB."),
    (r"CPU time limit exceeded", "The compiler reached its limit of time."),
    (
        r"out of memory|virtual memory exhausted|Cannot allocate memory|bad_alloc|Allocation failed",
        "The compiler reached its limit of {memory_mib} MiB of memory.",
    ),
)
"""What compilers say at a limit, some of them as if it were a fault of their own, and what it means."""


class OutOfTime(Exception):
    """The limit of wall-clock time was reached; the text is the end of what the compiler had printed."""


@attrs.define
class Compilers:
    """How compilers of one build are run: time and memory are limited for all of them together and for each.

    `deadline` is on the clock `time.monotonic`.
    """

    readable: Sequence[str]
    """Directories of the toolchain, beside the system's."""
    writable: str
    """The build's own directory."""
    memory_mib: int
    deadline: float
    path: str
    """Search path of the compilers."""
    knows_itself: bool = False
    """Whether they have a `/proc`, to find their own files by; an assembler could read it as well."""

    def run(
        self, argv: Sequence[str], cwd: Path | str, environment: Mapping[str, str] | None = None
    ) -> tuple[int, str, float]:
        """Run a program in `cwd`; returns its status, what it printed and its processor time in seconds.

        Raises:
            OutOfTime: it did not end in time and was killed with all it started.
        """
        left_s = self.deadline - time.monotonic()
        if left_s <= 0:
            raise OutOfTime
        readable = [path for path in (*_SYSTEM, *_DEVICES, *self.readable) if os.path.exists(path)]

        def confine() -> None:
            sandbox.confine(
                memory_mib=self.memory_mib,
                cpu_s=int(left_s) + 2,
                file_mib=_FILE_MIB,
                processes=256,
                readable=readable,
                writable=[self.writable],
                knows_itself=self.knows_itself,
            )

        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    "PATH": self.path,
                    "LC_ALL": "C.UTF-8",
                    "TMPDIR": str(cwd),
                    "HOME": str(cwd),
                    **(environment or {}),
                },
                preexec_fn=confine,
            )
            late = threading.Timer(left_s, _kill, (process.pid,))
            late.daemon = True
            late.start()
            try:
                _, status, usage = os.wait4(process.pid, 0)
            finally:
                late.cancel()
            process.returncode = os.waitstatus_to_exitcode(status)
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _MAX_LOG_BYTES))
            text = log.read().decode("utf-8", "replace")
        if time.monotonic() >= self.deadline:
            raise OutOfTime(text)
        return process.returncode, text, usage.ru_utime + usage.ru_stime


def reached_limit(log: str, memory_mib: int) -> str:
    """A sentence on the limit that a compiler's log tells of; empty where it tells of none."""
    found = (sentence for pattern, sentence in _LIMITS if re.search(pattern, log))
    return next(found, "").format(memory_mib=memory_mib)


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
