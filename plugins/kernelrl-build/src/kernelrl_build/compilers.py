"""Runs compilers in a sandbox, with limits of time and memory."""

from __future__ import annotations

import contextlib
import functools
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

from kernelrl_sandbox import sandbox, visible

__all__ = ["Compilers", "OutOfTime", "reached_limit"]

_DEVICES = ("/dev/null",)
"""The only one: a source could include another device, which never ends."""
_MAX_LOG_BYTES = 1 << 20
_FILE_MIB = 1024
_KILLED = re.compile(r"\b[Kk]ill")
_COUNTED = 0.8
"""Share of the limit that a killed process has used at least, if the limit was the reason."""
_LIMITS = (
    (r"File size limit exceeded|[Ff]ile too large", f"The compiler's output reached its limit of {_FILE_MIB} MiB."),
    (
        r"out of memory|virtual memory exhausted|Cannot allocate memory|bad_alloc|Allocation failed",
        "The compiler reached its limit of {memory_mib} MiB of memory.",
    ),
)
"""Messages of compilers at a limit, some of which look like a crash, and the limit that each means."""


class OutOfTime(Exception):
    """A limit of time was reached; the text is the end of the compiler's output.

    Args:
        waited: whether the limit of wall time was reached, and not that of CPU time.
    """

    def __init__(self, text: str = "", *, waited: bool) -> None:
        super().__init__(text)
        self.waited = waited


@attrs.define
class Compilers:
    """Runs the compilers of one build. Together they have one limit of time; each has the limit of memory.

    The time that a compiler waits for a CPU core extends `deadline`, up to `latest`: the load of a machine says nothing
    about a candidate. Both are on the clock `time.monotonic`.
    """

    readable: Sequence[str]
    """Directories of the toolchain, in addition to those of the system."""
    writable: str
    """Directory of the build."""
    memory_mib: int
    deadline: float
    latest: float
    path: str
    """Search path of the compilers."""
    knows_itself: bool = False
    """Whether they have a `/proc`, with which a compiler finds its own files. An assembler could read it as well."""

    def extend(self, seconds: float) -> None:
        """Give the build more time."""
        self.deadline += seconds
        self.latest += seconds

    def run(self, argv: Sequence[str], cwd: Path | str) -> tuple[int, str, float]:
        """Run a program in `cwd`; returns its status, its output and its CPU time in seconds.

        Raises:
            OutOfTime: it did not end in time and was killed, with all processes that it started.
        """
        now = time.monotonic()
        left_s = self.deadline - now
        if left_s <= 0:
            raise OutOfTime(waited=now >= self.latest)
        existing = [path for path in (*_system(), *_DEVICES, *self.readable) if os.path.exists(path)]
        readable = visible.outermost(existing)

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

        # In the directory of the build: a log that fills the disk is then removed with the other files.
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
        # The limit of CPU time, which is counted in ticks, ends one process. The compiler that started it then fails.
        killed = process.returncode == 128 + signal.SIGKILL or _KILLED.search(text[-1000:])
        least_s = left_s * (_COUNTED if killed else 1.0)
        if ended >= self.latest or (status and ran_s >= least_s):
            raise OutOfTime(text, waited=ended >= self.latest)
        self.deadline = min(self.latest, self.deadline + max(0.0, ended - now - ran_s))
        return process.returncode, text, ran_s


def reached_limit(log: str, memory_mib: int) -> str:
    """A sentence on the limit that a compiler's log reports; empty if it reports none."""
    found = (sentence for pattern, sentence in _LIMITS if re.search(pattern, log))
    return next(found, "").format(memory_mib=memory_mib)


@functools.cache
def _system() -> list[str]:
    return visible.system_paths()


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)
