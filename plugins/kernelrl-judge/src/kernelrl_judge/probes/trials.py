"""The trials of one candidate, and what direct calls and replays of them have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from kernelrl_core.api.evaluators import EvaluationSettings, Finding, Mismatch
from kernelrl_judge.probes.parameters import ParametersProbe
from kernelrl_judge.task.reference import Reference

__all__ = ["TrialFailure", "TrialResults", "run_trials"]


@attrs.frozen
class TrialFailure:
    """A trial that failed."""

    mismatch: Mismatch
    finding: Finding | None = None
    """Evidence of a hack."""
    is_final: bool = False
    """Whether further trials would show the same."""
    other_parameters: bool = False
    """Whether that trial had drawn parameters."""


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
    call_us: Sequence[float] = ()
    """Device time of each replay of one call."""


def run_trials(
    reference: Reference,
    settings: EvaluationSettings,
    parameters: ParametersProbe,
    run_trial: Callable[[Reference, int], TrialFailure | None],
) -> tuple[int, TrialFailure | None]:
    """Run the trials until one shows that further ones would show nothing new.

    Args:
        run_trial: runs one trial of the reference with the candidate's parameters; returns its failure.

    Returns:
        The number of trials that passed, and the first failure.
    """
    passed = 0
    failure: TrialFailure | None = None
    for index in range(settings.trials):
        used = parameters.construct_for(reference, index)
        found = run_trial(used, index)
        if found is None:
            passed += 1
            continue
        if failure is None:
            failure = attrs.evolve(found, other_parameters=used is not reference)
        if found.is_final:
            break
    return passed, failure
