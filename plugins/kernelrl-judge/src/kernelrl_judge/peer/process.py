"""The process of one candidate, seen from the judge: forked from a zygote, killed with everything it has started."""

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

import attrs

from kernelrl_judge.limits import LIMITS
from kernelrl_judge.peer.cancellation import Cancelled, CancelWatch
from kernelrl_judge.peer.memory import FileExchange
from kernelrl_judge.peer.nursery import Zygote, ZygoteDied
from kernelrl_judge.protocol import frames
from kernelrl_judge.protocol.device_memory import DeviceMemoryError
from kernelrl_judge.protocol.failures import NO_DEVICE_MEMORY
from kernelrl_judge.protocol.forks import NotForked
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_sandbox.freezing import descendants, longest_wait_s, ran_s, suspended, total_s, waited_s

__all__ = ["KEPT_OUTPUT_BYTES", "DeadlinePassed", "RunnerEnded", "RunnerLimits", "RunnerProcess", "TimeLimit"]

KEPT_OUTPUT_BYTES = 16_384
"""Kept of a candidate's printed output: as much of its beginning as of its end."""
_BACKGROUND_NICE = 5
"""Added to the niceness of a slow candidate: a quarter of a CPU core that another candidate needs as well."""
_LEAST_MORE_S = 0.05
_START_LIMIT_S = 120.0
_STATUS_WITHIN_S = 2.0
"""Time in which the supervisor of a runner that has ended reports how."""


class RunnerEnded(Exception):
    """The runner's process ended without a failure message.

    Args:
        how: as the supervisor reports it, such as `signal 11` or `exit 1`.
    """

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL ended it, as the system does where memory runs out."""
        return self.how == f"signal {int(signal.SIGKILL)}"


class DeadlinePassed(Exception):
    """The candidate's time limit has passed."""


@attrs.frozen
class RunnerLimits:
    """Limits that a runner enters its sandbox with."""

    memory_mib: int
    """Memory beyond that of the zygote, in MiB."""
    cpu_s: int
    """CPU time, in seconds."""


@attrs.define
class TimeLimit:
    """Time limit of a candidate, which the load of a machine extends: it says nothing about the candidate.

    Threads that wait for each other extend nothing, because a candidate that has run for the limit gets no more time.
    """

    limit_s: float
    waited_s: dict[int, float]
    """Time that each thread has waited for a processor so far, by its number."""
    ran_s: dict[int, float]
    """CPU time of each process at the beginning, by its number."""
    left_s: float
    """Time by which the limit can still be extended."""

    def extension_s(self, waited_s: dict[int, float], ran_s: dict[int, float]) -> float:
        """Time by which the limit is extended now; 0 if the candidate had its time.

        Args:
            waited_s: as the attribute, now.
            ran_s: as the attribute, now.
        """
        more_s = min(self.left_s, longest_wait_s(self.waited_s, waited_s))
        if more_s < _LEAST_MORE_S or total_s(self.ran_s, ran_s) >= self.limit_s:
            return 0.0
        self.waited_s = waited_s
        self.left_s -= more_s
        return more_s


class RunnerProcess:
    """A runner, before and while it serves its candidate. `close` releases what this process holds for it.

    Args:
        end_s: time that the end of the process is waited for.
        cancel_watch: noticed while waiting for a frame.

    Raises:
        What `Zygote.fork` raises.
    """

    def __init__(self, zygote: Zygote, limits: RunnerLimits, *, end_s: float, cancel_watch: CancelWatch) -> None:
        self._zygote = zygote
        self._patience_s = 0.0
        self._end_s = end_s
        self.deadline = math.inf
        """On the clock `time.monotonic`. Time that is not the candidate's own is added to it, such as that between a
        reply and the next order."""
        self._time_limit: TimeLimit | None = None
        self._replied_at: float | None = None
        """Arrival of a reply that no order has followed yet, on that clock."""
        self._cancel_watch = cancel_watch
        self._head, self._tail, self._n_printed = b"", b"", 0
        self._log_open = True
        self.files = FileExchange()
        self._has_started = False
        self.received_at = 0.0
        """Arrival of the last frame, on the clock `time.perf_counter`."""
        # The runner gets a read-only descriptor: it cannot change the judge's file of inputs.
        readable = os.open(f"/proc/self/fd/{self.files.inputs}", os.O_RDONLY | os.O_CLOEXEC)
        self._log, log = os.pipe()
        self._status, status = os.pipe()
        for descriptor in (self._log, self._status):
            os.set_blocking(descriptor, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._log, fcntl.F_SETPIPE_SZ, 1 << 20)
        self._stream, theirs = socket.socketpair()
        given = [theirs.fileno(), readable, self.files.outputs, log, status]
        try:
            self._pid, self._handle = zygote.fork(attrs.asdict(limits), given)
        except Exception:
            self._handle = -1
            self.close()
            raise
        finally:
            theirs.close()
            for descriptor in (readable, log, status):
                os.close(descriptor)

    def wait_for_start(self) -> Frame:
        """The first frame, for which the driver may let this runner wait. No candidate's time passes meanwhile.

        Raises:
            NotForked: the runner does not start.
            What `receive` raises.
        """
        self.deadline = time.monotonic() + _START_LIMIT_S
        try:
            return self.receive(lambda: None)
        except DeadlinePassed:
            raise NotForked(f"a runner did not start within {_START_LIMIT_S:.0f} s") from None

    def begin(self, *, limit_s: float, patience_s: float) -> None:
        """Let the time of the candidate begin.

        Args:
            limit_s: time from now to `deadline`, without that in which the candidate waits for a processor.
            patience_s: time that one reply may take before the candidate counts as slow (`receive`).
        """
        self._patience_s = patience_s
        self._replied_at = None
        self.deadline = time.monotonic() + limit_s
        most_s = (LIMITS.patience - 1) * limit_s
        self._time_limit = TimeLimit(limit_s, self.waited_s(), self.ran_s(), most_s)

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return not select.select([self._handle], [], [], 0)[0]

    def kill(self) -> None:
        """Begin to kill the candidate and everything it started. `end` waits for it."""
        self._signal(signal.SIGTERM)
        self._drain_log()

    def end(self) -> None:
        """Kill the candidate and everything it started, and wait until their resources are free."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._signal(number)
            # The supervisor ends after all others. If it has to be killed, they end some time later.
            if select.select([self._handle], [], [], self._end_s)[0]:
                break
        self._drain_log()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def close(self) -> None:
        """Release descriptors and shared files."""
        self._stream.close()
        self.files.close()
        for descriptor in (self._log, self._status, self._handle):
            if descriptor >= 0:
                os.close(descriptor)

    @property
    def printed(self) -> str:
        """Standard output and error of the candidate: beginning and end."""
        n_missing = self._n_printed - len(self._head) - len(self._tail)
        gap = f"\n… {n_missing} bytes omitted …\n".encode() if n_missing else b""
        return (self._head + gap + self._tail).decode("utf-8", "replace")

    def send(self, kind: FrameKind, body: bytes = b"", descriptors: Sequence[int] = ()) -> None:
        """Send a frame.

        Raises:
            RunnerEnded: the runner has ended.
        """
        if self._replied_at is not None:
            self.deadline += time.monotonic() - self._replied_at
            self._replied_at = None
        try:
            frames.send(self._stream, kind, body, descriptors)
        except OSError:
            raise RunnerEnded(self._ending()) from None

    def receive(self, on_slow: Callable[[], float | None], *, spin: bool = False) -> Frame:
        """The next frame.

        Args:
            on_slow: called when the frame takes longer than `patience_s`; returns in how many seconds it is to be
                called again, or None for never.
            spin: keep a CPU core busy while waiting. To wake this process would take tens to hundreds of microseconds,
                which a clock that is read afterwards would show.

        Raises:
            DeadlinePassed, Cancelled, RunnerEnded, ZygoteDied, NotForked, DeviceMemoryError: no frame will come.
            protocol.ProtocolError: the bytes are no frame of a runner.
        """
        self._wait_for_frame(on_slow, spin=spin)
        # A frame that has started must end in time as well.
        self._stream.settimeout(max(0.05, self.deadline - time.monotonic()))
        try:
            frame = frames.receive(self._stream)
        except TimeoutError:
            raise DeadlinePassed from None
        self.received_at = time.perf_counter()
        self._replied_at = time.monotonic()
        if frame is None:
            if not self._zygote.alive:
                raise ZygoteDied("the zygote ended under a candidate")
            raise self._end_reason()
        self._has_started = True
        return frame

    def _wait_for_frame(self, on_slow: Callable[[], float | None], *, spin: bool) -> None:
        """Wait until the stream is readable or closed; reads the log meanwhile."""
        slow_at = time.monotonic() + self._patience_s
        while True:
            now = time.monotonic()
            left_s = self.deadline - now
            if left_s <= 0:
                more_s = 0.0
                if self._time_limit is not None:
                    more_s = self._time_limit.extension_s(self.waited_s(), self.ran_s())
                if not more_s:
                    raise DeadlinePassed
                self.deadline = now + more_s
                continue
            if now >= slow_at:
                again_s = on_slow()
                slow_at = math.inf if again_s is None else time.monotonic() + again_s
                continue
            watched: list[socket.socket | int] = [self._stream, self._cancel_watch.descriptor, self._status]
            if self._log_open:
                watched.append(self._log)
            timeout_s = 0 if spin else min(left_s, slow_at - now)
            readable, _, _ = select.select(watched, [], [], timeout_s)
            if self._cancel_watch.descriptor in readable and self._cancel_watch.is_cancelled():
                raise Cancelled
            if self._log in readable:
                self._drain_log(once=True)
            if self._stream in readable:
                return
            if self._status in readable:
                # The candidate has ended, and a process that it started keeps the stream open.
                raise self._end_reason()

    def suspended(self) -> contextlib.AbstractContextManager[None]:
        """Stop the candidate and everything it started, inside the `with` block."""
        return suspended(self._pid)

    def ran_s(self) -> dict[int, float]:
        """CPU time of the candidate and everything it started, by process id; see `freezing.ran_s`."""
        return ran_s(self._pid)

    def waited_s(self) -> dict[int, float]:
        """Time that threads of the candidate and of everything it started waited for a processor, by thread id; see
        `freezing.waited_s`."""
        return waited_s(descendants(self._pid))

    def run_in_background(self) -> None:
        """Lower the priority of the candidate on the CPU, so that one that hangs does not slow others down."""
        nice = min(19, os.getpriority(os.PRIO_PROCESS, 0) + _BACKGROUND_NICE)
        with contextlib.suppress(OSError):
            with open(f"/proc/{self._pid}/task/{self._pid}/children") as file:
                children = file.read().split()
            for child in children:
                os.setpriority(os.PRIO_PGRP, int(child), nice)
                # Where sessions share the CPU fairly, priorities count within each session alone.
                with open(f"/proc/{child}/autogroup", "w") as file:
                    file.write(str(_BACKGROUND_NICE))

    def _end_reason(self) -> Exception:
        ending = self._ending()
        if self._has_started:
            return RunnerEnded(ending)
        # No line of a candidate was executed. The machine may lack memory for a process, for example.
        if ending == f"exit {NO_DEVICE_MEMORY}":
            return DeviceMemoryError("out of memory: the device has too little memory for a runner")
        return NotForked(f"a runner ended before it received a candidate: {ending}")

    def _ending(self) -> str:
        if select.select([self._status], [], [], _STATUS_WITHIN_S)[0]:
            return os.read(self._status, 64).decode("ascii", "replace") or "killed"
        return "silence"

    def _drain_log(self, *, once: bool = False) -> None:
        for _ in range(1 if once else 64):
            try:
                part = os.read(self._log, 1 << 20)
            except BlockingIOError:
                return
            if not part:
                self._log_open = False
                return
            self._n_printed += len(part)
            n_head = KEPT_OUTPUT_BYTES - len(self._head)
            self._head += part[:n_head]
            if len(part) > n_head:
                self._tail = (self._tail + part[n_head:])[-KEPT_OUTPUT_BYTES:]
