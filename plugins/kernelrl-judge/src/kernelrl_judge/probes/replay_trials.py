"""Trials and harder inputs by replays: each call is one replay on inputs that the judge writes into the input slot."""

from __future__ import annotations

from typing import Any

import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Finding, Mismatch
from kernelrl_judge.peer.recordings import CandidateRecordings
from kernelrl_judge.peer.session import RunnerSession
from kernelrl_judge.probes.inputs import inputs_mismatch
from kernelrl_judge.probes.parameters import ParametersProbe
from kernelrl_judge.probes.state import missing_state, state_mismatch
from kernelrl_judge.probes.stress_calls import StressCall, StressResult, compare_stressed
from kernelrl_judge.probes.trials import TrialFailure, TrialResults, run_trials
from kernelrl_judge.task.comparison import tolerance
from kernelrl_judge.task.parameter_match import ParameterMatch
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.reference import WARM, Reference, Trial

__all__ = ["ReplayTrials", "warm_inputs"]


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
        self._call_us: list[float] = []

    def run(self, reference: Reference) -> TrialResults:
        """Construct the candidate, record one call, and compare it on the inputs of every trial.

        Raises:
            NotRecorded: the candidate cannot be recorded.
            What `RunnerChannel.expect` raises.
        """
        parameters = ParametersProbe(self._settings, self._construct)
        passed, failure = run_trials(reference, self._settings, parameters, self._run_trial)
        return TrialResults(passed, failure, self.findings, call_us=tuple(self._call_us))

    def run_stressed(self, call: StressCall, used: Reference) -> StressResult:
        """Make a call of the probe `stress`.

        Args:
            used: the reference with the candidate's parameters.
        """
        mismatch = self._replay(used, Trial(call.inputs, call.expected))
        if mismatch is not None:
            return StressResult(mismatch)
        return compare_stressed(call, self._recordings.output(call.expected, 0))

    def _construct(self, used: Reference) -> ParameterMatch:
        """Construct the candidate's model again; the next call is recorded again."""
        self._recordings.leave()
        return self._session.construct(used)

    def _run_trial(self, used: Reference, index: int) -> TrialFailure | None:
        trial = used.trial(index)
        mismatch = self._replay(used, trial)
        if mismatch is None:
            actual = self._recordings.output(trial.expected, 0)
            mismatch = wrong_values(used, trial.inputs, index, trial.expected, actual, self._limit)
        if mismatch is None:
            mismatch = self._compare_effects(used, trial)
        if mismatch is None:
            return None
        return TrialFailure(mismatch, is_final=mismatch.kind in ("structure", "shape"))

    def _replay(self, used: Reference, trial: Trial) -> Mismatch | None:
        """One replay on the inputs of a trial, after a recording where nothing with such inputs is recorded."""
        recordings = self._recordings
        if not recordings.fits([trial.inputs]):
            warm = warm_inputs(used, trial.inputs)
            recordings.record([trial.inputs], warm, trial.expected, (1,), used.changed_state)
        mismatch = recordings.mismatch(trial.expected)
        if mismatch is not None:
            return mismatch
        recordings.write([trial.inputs])
        self._call_us.append(recordings.run().calls_us)
        return None

    def _compare_effects(self, used: Reference, trial: Trial) -> Mismatch | None:
        """Mismatch of the inputs and of the state after a call."""
        after = self._recordings.inputs(trial.inputs, 0)
        mismatch = inputs_mismatch(trial, after, used.facts.returned_inputs or (), self._limit)
        if mismatch is not None or not trial.state_after:
            return mismatch
        state = self._recordings.left(trial.state_after)
        self.findings += missing_state(used, trial.state_after, state)
        return state_mismatch(trial, state, self._limit)


def warm_inputs(used: Reference, like: list[Any]) -> list[Any]:
    """Inputs for the warm-up calls before a recording.

    Where inputs have other shapes than the task draws, as in some calls of `stress`, they are used themselves: random
    values could leave the domain of the task.
    """
    drawn = used.inputs(WARM)
    return drawn if _shapes(drawn) == _shapes(like) else like


def _shapes(values: list[Any]) -> list[Any]:
    return [value.shape if isinstance(value, torch.Tensor) else None for value in values]
