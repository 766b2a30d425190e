"""One candidate's runner, seen from the judge: started by a zygote, spoken to, and killed with all it has started."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence

from kernelrl_judge.isolation.forks import NotForked
from kernelrl_judge.isolation.freezing import ran_s, suspended
from kernelrl_judge.peer.memory import FileExchange
from kernelrl_judge.peer.nursery import Zygote, ZygoteDied
from kernelrl_judge.protocol import frames
from kernelrl_judge.protocol.device_memory import DeviceMemoryError
from kernelrl_judge.protocol.failures import NO_DEVICE_MEMORY
from kernelrl_judge.protocol.frames import Frame, FrameKind

__all__ = ["KEPT_OUTPUT_BYTES", "Cancelled", "DeadlinePassed", "Runner", "RunnerEnded"]

KEPT_OUTPUT_BYTES = 16_384
"""Of what a candidate prints: of its beginning and of its end."""
_SLOW_NICE = 5
"""A quarter of the time of a processor for which another candidate asks as well."""


class RunnerEnded(Exception):
    """The runner's process ended without saying why; the text is how, such as `signal 11`."""


class DeadlinePassed(Exception):
    """The candidate's time is over."""


class Cancelled(Exception):
    """Nobody waits for this evaluation any more."""


class Runner:
    """A runner under way. Use as a context manager; leaving it kills the runner and everything it started."""

    def __init__(
        self,
        zygote: Zygote,
        *,
        memory_mib: int,
        limit_s: float,
        patience_s: float,
        end_s: float,
        slow: Callable[[], float | None],
        cancelled: Callable[[], bool],
        watch: int,
    ) -> None:
        """
        Args:
            limit_s: wall-clock time from now to `deadline`.
            patience_s: how long one answer may take before `slow` is called, which returns in how many seconds it is
                to be called again, if at all.
            end_s: how long its end is waited for.
            cancelled: whether nobody waits any more; asked when the descriptor `watch` is readable.
        """
        self._zygote = zygote
        self._patience_s = patience_s
        self._end_s = end_s
        self._slow = slow
        self.deadline = time.monotonic() + limit_s
        """On the clock `time.monotonic`; whoever grants more time moves it."""
        self._cancelled = cancelled
        self._watch = watch
        self._head, self._tail, self._printed = b"", b"", 0
        self._log_open = True
        self.files = FileExchange()
        self._has_started = False
        self.heard_at = 0.0
        """When the last frame had come, by the clock `time.perf_counter`."""
        # The runner's descriptor cannot write: the judge's own file of inputs stays as the judge made it.
        readable = os.open(f"/proc/self/fd/{self.files.inputs}", os.O_RDONLY | os.O_CLOEXEC)
        self._log, log = os.pipe()
        self._status, status = os.pipe()
        for descriptor in (self._log, self._status):
            os.set_blocking(descriptor, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._log, fcntl.F_SETPIPE_SZ, 1 << 20)
        self._stream, theirs = socket.socketpair()
        # The limit of processor time is for what escapes the clock; windows and threads may use more than one second a
        # second.
        limits = {"memory_mib": memory_mib, "cpu_s": int(limit_s * 4) + 60}
        try:
            self._pid, self._handle = zygote.fork(limits, [theirs.fileno(), readable, self.files.outputs, log, status])
        except Exception:
            self._handle = -1
            self._close()
            raise
        finally:
            theirs.close()
            for descriptor in (readable, log, status):
                os.close(descriptor)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._drain()
        self._close()

    def end(self) -> None:
        """Kill the candidate and everything it started, and wait until what they held is free."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)
            # The supervisor ends after all others. When it is killed instead, they end some time later.
            if select.select([self._handle], [], [], self._end_s)[0]:
                return

    def _close(self) -> None:
        self._stream.close()
        self.files.close()
        for descriptor in (self._log, self._status, self._handle):
            if descriptor >= 0:
                os.close(descriptor)

    @property
    def printed(self) -> str:
        """What the candidate wrote to its standard output and error: beginning and end."""
        left_out = self._printed - len(self._head) - len(self._tail)
        gap = f"\n… {left_out} bytes left out …\n".encode() if left_out else b""
        return (self._head + gap + self._tail).decode("utf-8", "replace")

    def send(self, kind: FrameKind, body: bytes = b"", descriptors: Sequence[int] = ()) -> None:
        try:
            frames.send(self._stream, kind, body, descriptors)
        except OSError:
            raise RunnerEnded(self._ending()) from None

    def receive(self, *, spin: bool = False) -> Frame:
        """The next frame.

        Args:
            spin: keep the processor busy while waiting. Waking this process up would take tens to hundreds of
                microseconds, which a clock that is read afterwards would show.

        Raises:
            DeadlinePassed, Cancelled, RunnerEnded, ZygoteDied, NotForked: there will be none.
            protocol.ProtocolError: what came is no frame, or not the runner's.
        """
        patient_until = time.monotonic() + self._patience_s
        while True:
            now = time.monotonic()
            left = self.deadline - now
            if left <= 0:
                raise DeadlinePassed
            if now < patient_until:
                left = min(left, patient_until - now)
            else:
                again_s = self._slow()
                patient_until = math.inf if again_s is None else time.monotonic() + again_s
                continue
            watched = [self._stream, self._watch, self._status, *([self._log] if self._log_open else [])]
            ready, _, _ = select.select(watched, [], [], 0 if spin else left)
            if not ready:
                continue
            if self._watch in ready and self._cancelled():
                raise Cancelled
            if self._log in ready:
                self._drain(once=True)
            if self._stream in ready:
                break
            if self._status in ready:
                # The candidate is gone, and something that it started keeps the stream open.
                raise self._ended()
        # A frame that has begun must end in time as well.
        self._stream.settimeout(max(0.05, self.deadline - time.monotonic()))
        try:
            frame = frames.receive(self._stream)
        except TimeoutError:
            raise DeadlinePassed from None
        self.heard_at = time.perf_counter()
        if frame is None:
            if not self._zygote.alive:
                raise ZygoteDied("the zygote ended under a candidate")
            raise self._ended()
        self._has_started = True
        return frame

    def suspended(self) -> contextlib.AbstractContextManager[None]:
        """Stop the candidate and everything it started, for a while."""
        return suspended(self._pid)

    def ran_s(self) -> dict[int, float]:
        """Processor time of the candidate and everything it started; see `freezing.ran_s`."""
        return ran_s(self._pid)

    def step_back(self) -> None:
        """Let others go first on the processor: what hangs must not take the time of those who do not."""
        nice = min(19, os.getpriority(os.PRIO_PROCESS, 0) + _SLOW_NICE)
        with contextlib.suppress(OSError):
            with open(f"/proc/{self._pid}/task/{self._pid}/children") as file:
                children = file.read().split()
            for child in children:
                os.setpriority(os.PRIO_PGRP, int(child), nice)
                # Where sessions share the processor fairly, priorities count within each alone.
                with open(f"/proc/{child}/autogroup", "w") as file:
                    file.write(str(_SLOW_NICE))

    def _ended(self) -> Exception:
        if not self._has_started:
            # No line of a candidate has run: the machine had no room for a process, say.
            ending = self._ending()
            if ending == f"exit {NO_DEVICE_MEMORY}":
                return DeviceMemoryError("out of memory: the device has no room for a runner")
            return NotForked(f"a runner ended before it was given a candidate: {ending}")
        return RunnerEnded(self._ending())

    def _ending(self) -> str:
        if select.select([self._status], [], [], 2.0)[0]:
            return os.read(self._status, 64).decode("ascii", "replace") or "killed"
        return "silence"

    def _drain(self, *, once: bool = False) -> None:
        for _ in range(1 if once else 64):
            try:
                part = os.read(self._log, 1 << 20)
            except BlockingIOError:
                return
            if not part:
                self._log_open = False
                return
            self._printed += len(part)
            room = KEPT_OUTPUT_BYTES - len(self._head)
            self._head += part[:room]
            self._tail = (self._tail + part[room:])[-KEPT_OUTPUT_BYTES:] if len(part) > room else self._tail
