"""What the windows of a measurement have told, and what is to be said of it."""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from kernelrl_core.api.evaluators import Finding, RuntimeStatistics, Severity
from kernelrl_judge import protocol
from kernelrl_judge.suspending import Standing
from kernelrl_judge.value_trees import decode_tree

__all__ = ["Record", "lost"]

_WORTH_A_LOOK = 1.5
_MORE_THREADS = 1.05
"""Processor time that a window may have for each of its threads, as a share of its length."""
_LOST_BYTES = 1024
"""Of memory, that each call takes and does not give back."""
_LOST_BYTES_A_WINDOW = 16 << 10
"""The runner itself keeps some KB a window."""
_DISAGREEMENT = 0.05
_DISAGREEMENT_S = {"cuda": 100e-6, "cpu": 500e-6}
"""On the processor both sides sleep while they wait, and waking up takes its time."""


class Record:
    """Takes notes of the windows of a candidate.

    Args:
        device: `cpu` or `cuda`.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._claims: list[tuple[float, float]] = []
        self._moving: list[tuple[float, float]] = []
        self._exports_s: list[float] = []
        self._held: list[tuple[int, int]] = []
        self._events: list[float] = []
        self._movements: list[bool] = []
        self._moved = False
        self._processors: list[float] = []
        self._stages_s: dict[str, float] = {}
        self._ran_s = math.inf

    def forget(self) -> None:
        """Begin anew, but for how long stages took and whether the runner stood still."""
        self._claims.clear()
        self._held.clear()
        self._moving.clear()
        self._exports_s.clear()
        self._events.clear()
        self._processors.clear()

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of what is done within as that of a stage."""
        started = time.perf_counter()
        yield
        self.spent(name, time.perf_counter() - started)

    def spent(self, name: str, seconds: float) -> None:
        """A stage took so long."""
        self._stages_s[name] = self._stages_s.get(name, 0.0) + seconds

    def stood(self, standing: Standing) -> None:
        """Take note of whether the runner stood still."""
        moved = standing.moved()
        self._moved |= moved
        self._movements.append(moved)

    def round_is_lost(self) -> bool:
        """Whether, since the last question, the runner ran while it was to stand still, and no driver woke it up.

        On the processor that is a round lost: whoever may signal the runner, such as the control of jobs or of a
        container, can let it go on.
        """
        moved, self._moved = self._moved, False
        return moved and self._device == "cpu"

    def hear(self, frame: protocol.Frame, whole_s: float, calls: int) -> None:
        """A runner's word on a window, beside what the judge's clock says.

        Args:
            calls: of the window.

        Raises:
            ProtocolError: it is none.
        """
        claim = decode_tree(frame.body)
        if not isinstance(claim, dict) or not isinstance(claim.get("whole_s"), float):
            raise protocol.ProtocolError("a window without its telemetry")
        self._claims.append((whole_s, claim["whole_s"]))
        if type(claim.get("held_bytes")) is int:
            self._held.append((claim["held_bytes"], calls))
        if isinstance(claim.get("events_s"), float):
            self._events.append(claim["events_s"])

    def moved(self, spent_s: float, least_s: float) -> None:
        """A window took so long, and to move its bytes takes so long at least."""
        self._moving.append((spent_s, least_s))

    def exported(self, spent_s: float) -> None:
        """To copy the outputs of a window took a runner so long, which is no part of the window."""
        self._exports_s.append(spent_s)

    def beyond_s(self, before_s: Mapping[int, float], after_s: Mapping[int, float], window_s: float) -> float:
        """What a window would have taken longer with the threads that candidate and reference were promised.

        Nothing keeps a candidate from starting more. To keep it on so many processors would make honest ones wait for
        whoever else is there.

        Args:
            before_s: processor time of each process of the candidate, by its number, before the window.
            after_s: the same after it.
        """
        ran_s = sum(now_s - before_s.get(pid, 0.0) for pid, now_s in after_s.items())
        self._ran_s = ran_s
        self._processors.append(ran_s / window_s)
        alone_s = ran_s / torch.get_num_threads()
        return alone_s - window_s if alone_s > _MORE_THREADS * window_s else 0.0

    def without_waiting(self, spent_s: float) -> float:
        """Of the time of the window before, what the candidate ran: the rest it waited for others on a processor."""
        return min(spent_s, self._ran_s)

    def findings(self, runtime: RuntimeStatistics, baseline: RuntimeStatistics) -> tuple[Finding, ...]:
        """What is to be said of the windows."""
        # On a GPU the driver's memory is among that of the process.
        kept = lost(self._held) if self._device == "cpu" else ()
        return *self._disagreements(), *self._faster_than_copying(runtime, baseline), *self._ran_on(), *kept

    def telemetry(self, calls: int) -> dict[str, Any]:
        """For the profile.

        Args:
            calls: of a window.
        """
        found: dict[str, Any] = {
            "runner_clock_us": statistics.median(pair[1] for pair in self._claims) / calls * 1e6,
            "stages_s": {name: round(spent_s, 4) for name, spent_s in self._stages_s.items()},
            "judge_clock_us": statistics.median(pair[0] for pair in self._claims) / calls * 1e6,
        }
        if self._processors:
            found["processors"] = statistics.median(self._processors)
        if self._exports_s:
            found["runner_export_us"] = statistics.median(self._exports_s) * 1e6
        if self._events:
            found["events_us"] = statistics.median(self._events) / calls * 1e6
        return found

    def _faster_than_copying(self, runtime: RuntimeStatistics, baseline: RuntimeStatistics) -> tuple[Finding, ...]:
        fast = sum(spent_s < least_s for spent_s, least_s in self._moving) > len(self._moving) / 2
        if not fast or baseline.median_us < _WORTH_A_LOOK * runtime.median_us:
            return ()
        evidence = "calls took less than it takes to copy their outputs: these may have been written without that copy"
        return (Finding("faster_than_copying", Severity.SUSPECT, evidence, checker="judge"),)

    def _disagreements(self) -> tuple[Finding, ...]:
        ours = statistics.median(pair[0] for pair in self._claims)
        theirs = statistics.median(pair[1] for pair in self._claims)
        if ours - theirs <= max(_DISAGREEMENT * ours, _DISAGREEMENT_S[self._device]):
            return ()
        evidence = f"windows of {ours * 1e6:.0f} us by the judge's clock took {theirs * 1e6:.0f} us by the runner's"
        # On a busy processor the judge wakes up late; the time that is paid for is its own all the same.
        severity = Severity.SUSPECT if self._device == "cuda" else Severity.NOTE
        return (Finding("clock_disagreement", severity, evidence, checker="judge"),)

    def _ran_on(self) -> tuple[Finding, ...]:
        """A driver of a GPU may wake up a thread now and then."""
        if sum(self._movements) <= len(self._movements) / 2:
            return ()
        evidence = "it ran on most times that the judge had stopped it"
        return (Finding("ran_when_stopped", Severity.SUSPECT, evidence, checker="judge"),)


def lost(held: Sequence[tuple[int, int]]) -> tuple[Finding, ...]:
    """What is to be said of memory that calls take and never give back: what is kept for later ones is taken once.

    Args:
        held: bytes allocated after each window, and its calls.
    """
    grown = [(after - before, calls) for (before, _), (after, calls) in itertools.pairwise(held)]
    if not grown or statistics.median(more for more, _ in grown) < _LOST_BYTES_A_WINDOW:
        return ()
    of_a_call = statistics.median(more / calls for more, calls in grown)
    if of_a_call < _LOST_BYTES:
        return ()
    evidence = f"each call takes {of_a_call:.0f} bytes of memory that it does not give back"
    return (Finding("memory_leak", Severity.SUSPECT, evidence, checker="judge"),)
