"""Results of the trials of one candidate."""

from __future__ import annotations

import attrs

from kernelrl_core.api.evaluators import Finding, Mismatch

__all__ = ["RACE", "TrialFailure", "TrialResults"]

RACE = (
    "another call with the same inputs has a different result: threads or programs race, or the call uses what an "
    "earlier one left."
)
"""Evidence of the cause `race`."""


@attrs.frozen
class TrialFailure:
    """A trial that failed."""

    mismatch: Mismatch
    finding: Finding | None = None
    """Evidence of a hack."""
    is_final: bool = False
    """Whether further trials would show the same."""
    follows_other_parameters: bool = False
    """Whether a trial before it passed, with other parameters."""
    lacking: tuple[str, ...] = ()
    """Parameters of the reference for which the candidate has no tensor."""


@attrs.frozen
class TrialResults:
    """Results of the trials."""

    passed: int
    failure: TrialFailure | None = None
    """The first trial that failed."""
    findings: tuple[Finding, ...] = ()
    """Findings that do not end the evaluation."""
    computing_operators: tuple[str, ...] | None = None
    """Operators of torch that computed; None where they were not listed."""
    not_covered: tuple[str, ...] = ()
    """Regions of the inputs on which the output hardly depends."""
