"""The paid time of a candidate: the judge's clock over windows of calls.

A window is k calls on k distinct inputs, long against the message that starts it (at least 1 ms). The judge's clock
runs from the order until the runner says that the calls are made, and on the processor, where each output is exported
before the next call, until that is done; what the message and such an export cost is measured apart and taken off. On a
GPU outputs are exported after that, and only what takes longer than it may counts. A GPU is kept busy while the first
call is on its way, on either side, and that is taken off as well. The inputs come with the order, and the runner stands
still while the judge times the reference or measures costs, and on the processor while it writes the inputs: nothing
can be done before the clock runs, nor against the reference. A GPU has to turn to the runner before the order, when the
inputs are there: that may take what it took without a candidate, and the rest counts. What a runner left to the GPU is
seen when the judge's own work there does not start at once. On the processor a window takes at least its processor time
by the threads that both sides were promised.

At the end of each window the judge copies the outputs as they are and compares those of calls chosen only then with
what the reference makes of the same inputs: a call that did not do its work in time is wrong. The reference's windows
are interleaved with the candidate's in random order, in the judge's own process. What the runner's clocks say is
telemetry and has to agree.
"""

from __future__ import annotations

import time
from typing import Any

import attrs

from kernelrl_core.api.evaluators import Finding, RuntimeStatistics
from kernelrl_judge.reference import Reference
from kernelrl_judge.rounds import Rounds
from kernelrl_judge.statistics import interval_of_ratio, settled, summarise
from kernelrl_judge.watching import WITHIN, Look, Watch
from kernelrl_judge.window_lengths import find_lengths, guess_lengths

__all__ = ["Measurement", "Timing"]

_MIN_ROUNDS = 10
_FEWEST_ROUNDS = WITHIN
_SETTLED = 0.012
_LONGEST_S = 15.0
_BUDGET_S = {"cuda": 0.2, "cpu": 0.8}
_LISTED_CALLS = {"cuda": 32, "cpu": 160}
"""Most calls of a window in which operators are listed, which takes many times as long."""


@attrs.frozen
class Timing:
    """What the windows gave."""

    runtime: RuntimeStatistics
    baseline: RuntimeStatistics
    speedup: float
    speedup_ci: tuple[float, float]
    findings: tuple[Finding, ...]
    telemetry: dict[str, Any]


class Measurement:
    """Times a candidate that passed its trials: `prepare` where that may be, `run` on a device that is this judge's
    alone, and then `result`.

    Args:
        watch: that of the rounds; None if nothing is looked at.
    """

    def __init__(self, reference: Reference, rounds: Rounds, watch: Watch | None = None) -> None:
        self._reference = reference
        self._rounds = rounds
        self._watch = watch
        self._device = reference.device
        self._calls = (1, 1)
        self._candidate_us: list[float] = []
        self._ran_us: list[float] = []
        self._baseline_us: list[float] = []

    def prepare(self) -> None:
        """Guess the lengths of windows on a GPU while others use it, too, so that less is left to do alone.

        What `run` raises, this may raise, too.
        """
        if self._device == "cuda":
            self._calls = guess_lengths(self._reference, self._searching)

    def run(self, max_rounds: int) -> None:
        """Make the windows.

        Args:
            max_rounds: most rounds of one window of each side.

        Raises:
            WrongWindow: an output of a timed call is wrong.
            What `expect` raises.
        """
        self._rounds.alone()
        calls = self._calls = find_lengths(self._reference, self._searching, self._calls)
        staged = max(calls)
        started, budget_s = time.perf_counter(), _BUDGET_S[self._device]
        least = min(_MIN_ROUNDS, max_rounds)
        # What the search for their length left: its rounds were of other lengths, or the first of theirs.
        self._rounds.forget()
        while len(self._candidate_us) < max_rounds:
            if self._watch is not None and self._watch.due(len(self._candidate_us)):
                self._rounds.make(staged, *calls, look=Look.HARSH)
                if self._watch.looks_at_state:
                    self._rounds.make(staged, *calls, look=Look.STATE)
                self._listed_round(staged, calls)
            candidate_s, baseline_s = self._rounds.make(staged, *calls)
            self._candidate_us.append(candidate_s / calls[0] * 1e6)
            self._ran_us.append(self._rounds.record.without_waiting(candidate_s) / calls[0] * 1e6)
            self._baseline_us.append(baseline_s / calls[1] * 1e6)
            count, spent_s = len(self._candidate_us), time.perf_counter() - started
            if count >= least and (
                spent_s > budget_s or (settled(self._candidate_us, _SETTLED) and settled(self._baseline_us, _SETTLED))
            ):
                break
            if count >= _FEWEST_ROUNDS and spent_s > _LONGEST_S:
                break
        if self._watch is not None:
            while self._watch.looks_again(self._ran_us):
                self._listed_round(staged, calls)
        self._rounds.staged_ahead()

    def release(self) -> None:
        """Let go of values, whether or not `run` came to its end."""
        self._rounds.release()

    def result(self) -> Timing:
        """What the windows gave. Takes a while, and nothing of the device."""
        runtime, baseline = summarise(self._candidate_us), summarise(self._baseline_us)
        return Timing(
            runtime,
            baseline,
            speedup=baseline.median_us / runtime.median_us,
            speedup_ci=interval_of_ratio(self._baseline_us, self._candidate_us),
            findings=(
                *self._rounds.findings(runtime, baseline),
                *((*self._watch.findings, *self._watch.overwritten) if self._watch is not None else ()),
            ),
            telemetry={
                "rounds": runtime.n,
                **self._rounds.telemetry(self._calls),
                **(self._watch.telemetry() if self._watch is not None else {}),
            },
        )

    @property
    def operators(self) -> list[str]:
        """Operators of torch that computed in watched windows."""
        return self._watch.operators if self._watch is not None else []

    def _searching(self, candidate_calls: int, baseline_calls: int) -> tuple[float, float]:
        return self._rounds.make(max(candidate_calls, baseline_calls), candidate_calls, baseline_calls, counts=False)

    def _listed_round(self, staged: int, calls: tuple[int, int]) -> None:
        assert self._watch is not None
        made = min(calls[0], _LISTED_CALLS[self._device])
        spent_s = self._rounds.make(staged, *calls, look=Look.LISTED, made=made)[0]
        self._watch.took(self._rounds.record.without_waiting(spent_s), made)
