"""Trials and harder inputs by replays: each call is one replay on inputs that the judge writes into the input slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import Cause, EvaluationSettings, Finding, Mismatch
from kernelrl_judge.peer.recordings import CandidateRecordings, ReplayFailed
from kernelrl_judge.peer.session import RunnerSession
from kernelrl_judge.probes.inputs import inputs_mismatch
from kernelrl_judge.probes.state import missing_state, state_mismatch
from kernelrl_judge.probes.stress_calls import StressCall, StressResult, compare_stressed
from kernelrl_judge.probes.trials import RACE, TrialFailure
from kernelrl_judge.protocol.frames import FrameKind
from kernelrl_judge.protocol.values import encode_tree
from kernelrl_judge.task.comparison import compare_values, tolerance
from kernelrl_judge.task.input_indices import WARM
from kernelrl_judge.task.parameter_match import ParameterMatch
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.trial import Trial

__all__ = ["ReplayTrials", "impose", "warm_inputs"]


class ReplayTrials:
    """Replays of single calls of one candidate."""

    def __init__(self, session: RunnerSession, recordings: CandidateRecordings, settings: EvaluationSettings) -> None:
        self._session = session
        self._recordings = recordings
        self._settings = settings
        self._limit = tolerance(settings)
        self.findings: tuple[Finding, ...] = ()
        """Findings that do not end the evaluation."""
        self.computing_operators: tuple[str, ...] | None = None
        """Not listed: the nodes of a recording show them (`ownership`)."""
        self.call_us: list[float] = []
        """Device time of each replay of one call."""
        self._has_failed = False
        self.records_each_call = False
        """Whether the candidate is right only where its calls are recorded with their own parameters."""

    def construct(self, reference: Reference) -> ParameterMatch:
        """Have the candidate construct its model with the parameters of a reference."""
        return self._session.construct(reference)

    def run_trial(self, reference: Reference, trial: Trial, index: int) -> TrialFailure | None:
        """Make the call of a trial as one replay.

        Args:
            reference: has the parameters of the call.

        Raises:
            NotRecorded: the candidate cannot be recorded.
            What `RunnerChannel.expect` raises.
        """

        def compare() -> Mismatch | None:
            actual = self._recordings.output(trial.expected, 0)
            wrong = wrong_values(reference, trial.inputs, index, trial.expected, actual, self._limit)
            return wrong or self._compare_effects(reference, trial)

        mismatch = self._compared(reference, trial, compare)
        if mismatch is None:
            return None
        if mismatch.kind in ("structure", "shape"):
            return TrialFailure(mismatch, is_final=True)
        return self._wrong_trial(reference, trial, mismatch)

    def _wrong_trial(self, reference: Reference, trial: Trial, wrong: Mismatch) -> TrialFailure:
        """A trial with a wrong output. After the first one, a replay with the same inputs shows whether the output
        depends on something else."""
        if self._has_failed or wrong.kind not in ("values", "non_finite"):
            return TrialFailure(wrong)
        self._has_failed = True
        actual = self._recordings.output(trial.expected, 0)
        try:
            has_other_structure = self._replay(reference, trial, is_new=False) is not None
        except ReplayFailed:
            return TrialFailure(wrong, is_final=True)
        if not has_other_structure:
            again = self._recordings.output(trial.expected, 0)
            if compare_values(actual, again, attrs.evolve(self._limit, strict=True)) is None:
                return TrialFailure(wrong)
        return TrialFailure(wrong.with_cause(Cause.RACE, RACE))

    def run_stressed(self, call: StressCall, reference: Reference) -> StressResult:
        """Make a call of the probe `stress`.

        Args:
            reference: has the parameters of the call.
        """
        result = StressResult(None)

        def compare() -> Mismatch | None:
            nonlocal result
            result = compare_stressed(call, self._recordings.output(call.expected, 0))
            return result.mismatch

        mismatch = self._compared(reference, Trial(call.inputs, call.expected), compare)
        return result if mismatch is None else StressResult(mismatch)

    def record_task(self, reference: Reference) -> None:
        """Record a call of the task, unless the last recording is one: a call on harder inputs may have other shapes.

        Raises:
            NotRecorded: the candidate cannot be recorded.
            What `RunnerChannel.expect` raises.
        """
        trial = reference.trial(0)
        if not self._recordings.fits([trial.inputs]):
            self._record(reference, trial)

    def _compared(self, reference: Reference, trial: Trial, compare: Callable[[], Mismatch | None]) -> Mismatch | None:
        """Mismatch of one replay.

        A kernel that keeps values computed from its parameters, and computes them anew where they have changed, is
        right if its calls are recorded again.
        """
        recordings = self._recordings
        is_new = self.records_each_call or not recordings.fits([trial.inputs])
        mismatch = self._replay(reference, trial, is_new=is_new) or compare()
        if mismatch is None or is_new or not reference.drawn_names:
            return mismatch
        again = self._replay(reference, trial, is_new=True) or compare()
        self.records_each_call = again is None
        return again

    def _replay(self, reference: Reference, trial: Trial, *, is_new: bool) -> Mismatch | None:
        """One replay on the inputs of a trial; returns a difference of the structure of its output.

        Args:
            is_new: record the call first.
        """
        recordings = self._recordings
        if is_new:
            self._record(reference, trial)
        mismatch = recordings.mismatch(trial.expected)
        if mismatch is not None:
            return mismatch
        recordings.write([trial.inputs], reference.imposed_state)
        self.call_us.append(recordings.run().calls_us)
        return None

    def _record(self, reference: Reference, trial: Trial) -> None:
        self._recordings.leave()
        impose(self._session, reference)
        self._recordings.record(
            [trial.inputs],
            warm_inputs(reference, trial.inputs),
            trial.expected,
            (1,),
            imposed=reference.imposed_state,
            changed=reference.changed_state,
        )

    def _compare_effects(self, reference: Reference, trial: Trial) -> Mismatch | None:
        """Mismatch of the inputs and of the state after a call."""
        after = self._recordings.inputs(trial.inputs, 0)
        mismatch = inputs_mismatch(trial, after, reference.facts.returned_inputs or (), self._limit)
        if mismatch is not None or not trial.state_after:
            return mismatch
        state = self._recordings.left(trial.state_after)
        if not self.findings:
            self.findings = missing_state(reference, trial.state_after, state)
        return state_mismatch(trial, state, self._limit)


def impose(session: RunnerSession, reference: Reference) -> None:
    """Give the candidate's model the parameters of the reference."""
    if reference.drawn_names:
        tree = session.exchange.share(reference.imposed_state)
        session.channel.order(FrameKind.IMPOSE, encode_tree(tree), reply=FrameKind.STAGED)


def warm_inputs(used: Reference, like: list[Any]) -> list[Any]:
    """Inputs for the warm-up calls before a recording.

    Where inputs have other shapes than the task draws, as in some calls of `stress`, they are used themselves: random
    values could leave the domain of the task.
    """
    drawn = used.inputs(WARM)
    return drawn if _shapes(drawn) == _shapes(like) else like


def _shapes(values: list[Any]) -> list[Any]:
    return [value.shape if isinstance(value, torch.Tensor) else None for value in values]
