"""Turning a GPU from the judge to the runner just before a window, when its inputs are there."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from kernelrl_core.api.evaluators import Finding, Severity
from kernelrl_judge import device_facts
from kernelrl_judge.overheads import REHEARSED, Flush
from kernelrl_judge.protocol import FrameKind
from kernelrl_judge.running import Runner

__all__ = ["Turning"]

_SLACK = 2.0
_LONGEST_S = 6e-4
"""However long it took without a candidate: more than an eighth of a window must not be free."""
_LOOKS = 0.1
"""Share of the windows before which the GPU is watched, for two milliseconds."""
_FEWEST_LOOKS = 3


class Turning:
    """Turns the GPU to a runner, and remembers how that went.

    Args:
        expect: receives the next frame, which has to be of a kind.
        flush: empties the caches.
        wake_s: from `overheads.turn_costs`.
    """

    def __init__(self, runner: Runner, expect: Callable[..., Any], flush: Flush, wake_s: float) -> None:
        self._runner = runner
        self._expect = expect
        self._flush = flush
        self._free_s = min(_SLACK * wake_s, _LONGEST_S)
        self._random = random.SystemRandom()
        self._tick = torch.zeros(1, device="cuda")
        self._looks: dict[bool, list[bool]] = {True: [], False: []}
        self._took_s: list[float] = []
        self.alone = False
        """Whether nobody else uses the GPU: otherwise there is nothing to see."""

    def look(self, *, candidate: bool, first: bool) -> None:
        """See whether the GPU is idle, before some windows: the runner has nothing to do, not even to look for inputs.

        What was left when inputs were staged slows the first window of a round, what was left after the candidate's
        window slows the reference's after it. Nothing can be left while the runner is stopped.

        Args:
            candidate: whether the window is that of the candidate.
            first: whether it is the first of its round.
        """
        if not self.alone or (candidate and not first):
            return
        seen = self._looks[first]
        if len(seen) < _FEWEST_LOOKS or self._random.random() < _LOOKS:
            seen.append(device_facts.is_busy(self._tick))

    def turn(self, share: Callable[[], None], *, first: bool) -> float:
        """Give the runner its inputs, by `share`, and the GPU; returns the time that this took longer than it may.

        It is not stopped before: to be woken up would take it longer than what it could do in the time of a flush.

        Args:
            first: whether the window is the first of its round.
        """
        # It has just been stopped for the baseline, and waits busily again after an answer.
        self._wake(REHEARSED)
        self.look(candidate=True, first=first)
        share()
        self._flush()
        started = time.perf_counter()
        # The flush was this process's: the device has to turn to the other one, and that is no work of a kernel.
        self._wake()
        self._took_s.append(time.perf_counter() - started)
        return max(0.0, self._took_s[-1] - self._free_s)

    def forget(self) -> None:
        """Begin anew with how long it took."""
        self._took_s.clear()

    def findings(self) -> tuple[Finding, ...]:
        """Whether there was work on the GPU that was not the judge's."""
        if not any(len(seen) >= _FEWEST_LOOKS and sum(seen) > len(seen) / 2 for seen in self._looks.values()):
            return ()
        evidence = "the GPU had work while the candidate had nothing to do: its own, or that of a stranger"
        return (Finding("left_to_device", Severity.SUSPECT, evidence, checker="judge"),)

    def telemetry(self) -> dict[str, float]:
        """How long it took, in microseconds, and in what share of the looks the GPU had work."""
        if not self._took_s:
            return {}
        looks = [seen for found in self._looks.values() for seen in found]
        return {
            "wake_us": statistics.median(self._took_s) * 1e6,
            "free_wake_us": self._free_s * 1e6,
            "busy_share": statistics.mean(looks),
        }

    def _wake(self, body: bytes = b"") -> None:
        self._runner.send(FrameKind.WAKE, body)
        self._expect(FrameKind.DONE, spin=True)
