"""The calls of one candidate whose outputs are compared: trials and harder inputs, in one random order.

The first call is a trial. A candidate that counts its calls cannot know which of the others have harder inputs. Every
call has parameters of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Protocol

import attrs

from kernelrl_core.api.evaluators import Finding
from kernelrl_judge.peer.channel import CandidateRaised
from kernelrl_judge.peer.process import DeadlinePassed, RunnerEnded
from kernelrl_judge.peer.session import RunnerSession
from kernelrl_judge.probes.parameters import construct_with_draws
from kernelrl_judge.probes.stress import StressFailure, StressResults
from kernelrl_judge.probes.stress_calls import StressCall, StressResult, stress_call, stress_families
from kernelrl_judge.probes.trials import TrialFailure, TrialResults
from kernelrl_judge.task.coverage import covered_inputs, measured_coverage
from kernelrl_judge.task.drawn_parameters import ParameterDraws
from kernelrl_judge.task.parameter_match import ParameterMatch
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.reference_budget import ReferenceBudget
from kernelrl_judge.task.regions import Region
from kernelrl_judge.task.trial import Trial

__all__ = ["CandidateCalls", "CheckedCalls"]


class CandidateCalls(Protocol):
    """Single calls of a candidate: `DirectTrials` or `ReplayTrials`."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings that do not end the evaluation."""
        ...

    @property
    def computing_operators(self) -> tuple[str, ...] | None:
        """Operators of torch that computed; None where they were not listed."""
        ...

    def construct(self, reference: Reference) -> ParameterMatch:
        """Have the candidate construct its model with the parameters of a reference."""
        ...

    def run_trial(self, reference: Reference, trial: Trial, index: int) -> TrialFailure | None:
        """Make the call of a trial; `reference` has its parameters."""
        ...

    def run_stressed(self, call: StressCall, reference: Reference) -> StressResult:
        """Make a call on harder inputs; `reference` has its parameters."""
        ...


@attrs.define(eq=False)
class CheckedCalls:
    """Makes the calls. The fields have the results until now, also after an exception."""

    _session: RunnerSession
    _calls: CandidateCalls
    _reference: Reference
    _has_stress: bool
    stress: StressResults | None = None
    """Results on harder inputs; None if there are no such calls."""
    _trials: TrialResults = attrs.field(factory=lambda: TrialResults(passed=0))
    _n_made: int = 0
    _random: random.Random = attrs.field(init=False)
    _stress_s: float = 0.0

    def __attrs_post_init__(self) -> None:
        # Candidates do not know the seed, from which inputs and parameters are drawn as well.
        self._random = random.Random(f"{self._reference.seed} order of calls")

    def run(self) -> ParameterDraws:
        """Construct the candidate and make the calls until one shows that further ones would show nothing new.

        Returns:
            The draws of the parameters, for timed calls.

        Raises:
            TaskError: the reference takes too long, or fails.
            What `RunnerChannel.expect` raises.
        """
        settings = self._reference.settings
        draws = construct_with_draws(self._reference, self._calls.construct)
        budget = ReferenceBudget.of(draws.reference)
        covered = self._covered_trials(draws.reference, budget)
        for planned in self._planned(draws.reference, budget):
            draws.draw()
            if isinstance(planned, str):
                self._run_family(draws.reference, planned)
                if self.stress is not None and self.stress.ended_candidate:
                    break
                continue
            inputs = None
            if planned in covered:
                inputs = covered_inputs(draws.reference, planned, covered[planned])
            trial = draws.reference.trial(planned, inputs)
            failure = self._calls.run_trial(draws.reference, trial, planned)
            self._n_made += 1
            self._add(failure, draws)
            if failure is not None and failure.is_final:
                self._n_made = settings.trials
                break
        return draws

    @property
    def trials(self) -> TrialResults | None:
        """Results of the trials; None if the candidate ended in a call on harder inputs before all were made."""
        if self._n_made < self._reference.settings.trials:
            return None
        calls = self._calls
        return attrs.evolve(self._trials, findings=calls.findings, computing_operators=calls.computing_operators)

    def _add(self, failure: TrialFailure | None, draws: ParameterDraws) -> None:
        known = self._trials
        if failure is None:
            self._trials = attrs.evolve(known, passed=known.passed + 1)
        elif known.failure is None:
            is_later = known.passed > 0 and bool(draws.reference.drawn_names)
            failure = attrs.evolve(failure, follows_other_parameters=is_later, lacking=draws.lacking_names)
            self._trials = attrs.evolve(known, failure=failure)

    def _planned(self, reference: Reference, budget: ReferenceBudget) -> list[int | str]:
        """Indices of trials and names of families."""
        planned: list[int | str] = [*range(reference.settings.trials)]
        first = planned.pop(self._random.randrange(len(planned)))
        if self._has_stress:
            inapplicable: list[str] = []
            families = stress_families(reference, inapplicable)
            self._random.shuffle(families)
            if len(families) > budget.families:
                inapplicable.append(f"{len(families) - budget.families} families: the reference is slow")
            self.stress = StressResults(inapplicable=tuple(inapplicable), dtype_name=str(reference.dtype))
            planned += families[: budget.families]
        self._random.shuffle(planned)
        return [first, *planned]

    def _covered_trials(self, reference: Reference, budget: ReferenceBudget) -> dict[int, Mapping[Region, float]]:
        """Indices of the trials with levels in regions of the inputs; two others, at least, are as drawn."""
        settings = reference.settings
        if settings.profile != "strict" or "coverage" not in settings.probes or settings.trials == 1:
            return {}
        coverage = measured_coverage(reference, budget.regions)
        if coverage is None:
            return {}
        not_covered = tuple(region.text for region in coverage.ignored)
        self._trials = attrs.evolve(self._trials, not_covered=not_covered)
        n_covered = min(coverage.n_trials, max(1, settings.trials - 2))
        chosen = self._random.sample(range(settings.trials), n_covered)
        first_axis = self._random.randrange(coverage.n_trials)
        return {index: coverage.of_trial(first_axis + number) for number, index in enumerate(chosen)}

    def _run_family(self, reference: Reference, family: str) -> None:
        """Make the call of a family.

        None is made after a wrong trial or a suspect call, or if such calls have taken the time limit.
        """
        assert self.stress is not None
        limit_s = reference.settings.timeout_s
        if self._trials.failure is not None or self.stress.has_suspect_failure or self._stress_s >= limit_s:
            return
        inapplicable: list[str] = []
        call = stress_call(reference, family, inapplicable)
        self.stress = attrs.evolve(self.stress, inapplicable=(*self.stress.inapplicable, *inapplicable))
        if call is None:
            return
        failed = self._make_stressed(call, reference)
        if failed and not call.is_within_range and not self.stress.ended_candidate:
            # The same family within the range of the task decides whether the candidate is suspect.
            call = stress_call(reference, family, [], is_in_range=True)
            if call is not None:
                self._make_stressed(call, reference)

    def _make_stressed(self, call: StressCall, reference: Reference) -> bool:
        """Make a call on harder inputs; returns whether it failed."""
        assert self.stress is not None
        limit_s = reference.settings.timeout_s
        self.stress = attrs.evolve(self.stress, n_calls=self.stress.n_calls + 1)
        process = self._session.process
        started = time.monotonic()
        left_s = process.deadline - started
        # A call on harder inputs has a time limit of its own.
        process.deadline = started + limit_s
        failure = self._stress_failure(call, reference)
        ended = time.monotonic()
        self._stress_s += ended - started
        process.deadline = ended + left_s
        if failure is not None:
            self.stress = self.stress.with_failure(failure)
        return failure is not None

    def _stress_failure(self, call: StressCall, reference: Reference) -> StressFailure | None:
        """The failure of a call on harder inputs; None if the output is right or not decided.

        Raises:
            CandidateRaised: the device lacks memory while others use it.
            ProtocolError, ReplayFailed, NotRecorded and the judge's own errors.
        """
        assert self.stress is not None
        try:
            result = self._calls.run_stressed(call, reference)
        except CandidateRaised as raised:
            if raised.failure.kind != "memory":
                return StressFailure(call.family, raised, call.is_within_range)
            # The judge holds much of the device memory now. The candidate may have the device exclusively later.
            if not self._session.lease.is_exclusive:
                raise
            self.stress = attrs.evolve(self.stress, undecided_family=call.family)
            return None
        except (DeadlinePassed, RunnerEnded) as ending:
            return StressFailure(call.family, ending, call.is_within_range)
        if result.mismatch is not None:
            return StressFailure(call.family, result.mismatch, call.is_within_range)
        self.stress = self.stress.with_error_ratio(result.error_ratio)
        return None
