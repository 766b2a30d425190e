"""Results of the probe `stress`: calls on harder inputs."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.api.evaluators import EvaluationSettings, Mismatch
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.peer.channel import CandidateRaised
from kernelrl_judge.peer.process import DeadlinePassed, RunnerEnded

__all__ = ["CandidateEnding", "StressFailure", "StressResults"]

CandidateEnding = CandidateRaised | DeadlinePassed | RunnerEnded


@attrs.frozen
class StressFailure:
    """The call that failed."""

    family: str
    """Family of its inputs, or `sizes`."""
    cause: Mismatch | CandidateEnding
    """Difference of the output, or how the candidate ended."""
    is_within_range: bool
    """Whether its inputs are within the range of the task."""

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
    """The first failure within the range of the task, or else the first one; None if no call failed."""
    error_ratio: float | None = None
    """Largest error of the candidate divided by that of the reference, over the calls that it passed."""
    dtype_name: str = ""
    """Dtype of the task: `min_precision` is defined for `torch.float32` alone."""
    undecided_family: str = ""
    """Family that needs more device memory than the reference leaves; empty: none."""

    @property
    def ended_candidate(self) -> bool:
        """Whether the candidate's process ended in a call: no phase can follow."""
        return self.failure is not None and not isinstance(self.failure.cause, Mismatch)

    @property
    def has_suspect_failure(self) -> bool:
        """Whether a call within the range of the task failed, so that further ones would show nothing new."""
        return self.failure is not None and (self.failure.is_within_range or self.ended_candidate)

    def with_failure(self, failure: StressFailure) -> StressResults:
        """The results with a further failure."""
        replaces = self.failure is None or (failure.is_within_range and not self.failure.is_within_range)
        is_ending = not isinstance(failure.cause, Mismatch)
        return attrs.evolve(self, failure=failure) if replaces or is_ending else self

    def with_error_ratio(self, ratio: float | None) -> StressResults:
        """The results with the error of a call that passed."""
        ratios = [known for known in (self.error_ratio, ratio) if known is not None]
        return attrs.evolve(self, error_ratio=max(ratios, default=None))

    def is_suspect(self, settings: EvaluationSettings) -> bool:
        """Whether the results break an enabled rule."""
        if self.failure is not None and self.failure.is_within_range:
            return self.failure.rule in settings.probes
        return self.is_imprecise(settings)

    def is_imprecise(self, settings: EvaluationSettings) -> bool:
        """Whether errors are larger than `min_precision` explains."""
        limit = LIMITS.error_ratio.get(settings.min_precision)
        if limit is None or self.dtype_name != "torch.float32" or self.has_suspect_failure:
            return False
        return self.error_ratio is not None and self.error_ratio > limit
