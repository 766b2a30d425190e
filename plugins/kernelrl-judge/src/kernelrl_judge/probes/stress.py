"""The probe `stress`: calls on harder inputs, after all trials have passed."""

from __future__ import annotations

import time
from typing import Literal, Protocol

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Mismatch
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.peer.channel import CandidateRaised
from kernelrl_judge.peer.process import DeadlinePassed, RunnerEnded
from kernelrl_judge.peer.session import RunnerSession
from kernelrl_judge.probes.stress_calls import StressCall, StressResult, stress_calls
from kernelrl_judge.task.reference import Reference

__all__ = ["CandidateEnding", "StressFailure", "StressResults", "run_stress"]

CandidateEnding = CandidateRaised | DeadlinePassed | RunnerEnded


class StressableCalls(Protocol):
    """Single calls: `DirectTrials` or `ReplayTrials`."""

    def run_stressed(self, call: StressCall, used: Reference) -> StressResult:
        """Make a call; `used` is the reference with the candidate's parameters."""
        ...


@attrs.frozen
class StressFailure:
    """The call that failed."""

    family: str
    """Family of its inputs, or `sizes`."""
    cause: Mismatch | CandidateEnding
    """Difference of the output, or how the candidate ended."""

    @property
    def rule(self) -> Literal["stress", "sizes"]:
        """Rule that the candidate breaks."""
        return "sizes" if self.family == "sizes" else "stress"


@attrs.frozen
class StressResults:
    """Results of the probe."""

    n_calls: int = 0
    inapplicable: tuple[str, ...] = ()
    """Reason for each family that does not apply."""
    failure: StressFailure | None = None
    """None if no call failed."""
    error_ratio: float | None = None
    """Largest error of the candidate divided by that of the reference, over the calls that it passed."""
    is_fp32: bool = False
    """Whether the task computes in fp32, the only dtype for which `min_precision` is defined."""
    undecided_family: str = ""
    """Family that needs more device memory than the reference leaves; empty: none."""

    @property
    def ended_candidate(self) -> bool:
        """Whether the candidate's process ended in a call: no phase can follow."""
        return self.failure is not None and not isinstance(self.failure.cause, Mismatch)

    def is_suspect(self, settings: EvaluationSettings) -> bool:
        """Whether the results break an enabled rule."""
        if self.failure is not None:
            return self.failure.rule in settings.probes
        return self.is_imprecise(settings)

    def is_imprecise(self, settings: EvaluationSettings) -> bool:
        """Whether errors are larger than `min_precision` explains."""
        limit = LIMITS.error_ratio.get(settings.min_precision)
        if limit is None or not self.is_fp32 or self.failure is not None:
            return False
        return self.error_ratio is not None and self.error_ratio > limit


def run_stress(session: RunnerSession, calls: StressableCalls, reference: Reference) -> StressResults:
    """Make the calls until one fails.

    Args:
        calls: those that passed the trials.

    Raises:
        CandidateRaised: the device lacks memory while others use it.
        ProtocolError, ReplayFailed, NotRecorded and the judge's own errors.
    """
    timeout_s = reference.settings.timeout_s
    ends_at = time.monotonic() + timeout_s
    inapplicable: list[str] = []
    ratios: list[float] = []
    failure: StressFailure | None = None
    family, n_calls = "", 0
    try:
        for call in stress_calls(reference, inapplicable):
            if time.monotonic() >= ends_at:
                break
            family = call.family
            n_calls += 1
            session.process.deadline = time.monotonic() + timeout_s
            result = calls.run_stressed(call, reference)
            if result.mismatch is not None:
                failure = StressFailure(family, result.mismatch)
                break
            if result.error_ratio is not None:
                ratios.append(result.error_ratio)
    except CandidateRaised as raised:
        if raised.failure.kind == "memory":
            # The judge holds much of the device memory now. The candidate may have the device exclusively later.
            if not session.lease.is_exclusive:
                raise
            return StressResults(n_calls, undecided_family=family)
        failure = StressFailure(family, raised)
    except (DeadlinePassed, RunnerEnded) as ending:
        failure = StressFailure(family, ending)
    is_fp32 = reference.dtype is torch.float32
    return StressResults(n_calls, tuple(inapplicable), failure, max(ratios, default=None), is_fp32)
