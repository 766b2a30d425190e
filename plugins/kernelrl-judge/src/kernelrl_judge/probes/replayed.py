"""Trials and harder inputs by replays: each call is one replay on inputs that the judge writes into the input slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Finding, Mismatch
from kernelrl_judge.peer.replay import CandidateSession
from kernelrl_judge.probes.inputs import wrong_inputs
from kernelrl_judge.probes.parameters import Parameters
from kernelrl_judge.probes.state import lacking_state, wrong_state
from kernelrl_judge.probes.stress import Judged, StressCall, judged
from kernelrl_judge.probes.values import Found
from kernelrl_judge.task.comparing import tolerance
from kernelrl_judge.task.input_indices import WARM
from kernelrl_judge.task.parameters import Matched
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.reference import Reference, Trial

__all__ = ["ReplayTrials", "warm_inputs"]


class ReplayTrials:
    """The trials and the calls of the probe `stress` of one candidate, as replays.

    Args:
        construct: has the candidate construct its model with the parameters of a reference.
    """

    def __init__(
        self, session: CandidateSession, settings: EvaluationSettings, construct: Callable[[Reference], Matched]
    ) -> None:
        self._session = session
        self._settings = settings
        self._construct = construct
        self._limit = tolerance(settings)
        self.findings: tuple[Finding, ...] = ()
        """Suspicions that are no verdict."""
        self.call_us: list[float] = []
        """Device time of each pass of one call."""

    def run(self, reference: Reference) -> Found:
        """Construct the candidate, record one call, and compare it on the inputs of every trial.

        Raises:
            NotRecorded: the candidate cannot be recorded.
            What `construct` raises.
        """
        parameters = Parameters(self._settings, self.construct)
        passed, failed = 0, None
        for index in range(self._settings.trials):
            used = parameters.constructed(reference, index)
            trial = used.trial(index)
            wrong = self._called(used, trial)
            if wrong is None:
                actual = self._session.output(trial.expected, 0)
                wrong = wrong_values(used, trial.inputs, index, trial.expected, actual, self._limit)
            if wrong is None:
                wrong = self._left(used, trial)
            if wrong is None:
                passed += 1
                continue
            found = Found(0, wrong, other_parameters=used is not reference, final=wrong.kind in ("structure", "shape"))
            failed = failed or found
            if found.final:
                break
        return Found(passed) if failed is None else attrs.evolve(failed, passed=passed)

    def construct(self, used: Reference) -> Matched:
        """Have the candidate construct its model anew; it is recorded again at the next call."""
        self._session.leave()
        return self._construct(used)

    def stressed(self, call: StressCall, used: Reference) -> Judged:
        """Make a call of the probe `stress`.

        Args:
            used: the reference whose parameters the candidate has.
        """
        wrong = self._called(used, Trial(call.inputs, call.expected))
        return Judged(wrong) if wrong is not None else judged(call, self._session.output(call.expected, 0))

    def _called(self, used: Reference, trial: Trial) -> Mismatch | None:
        """One pass on the inputs of a trial, recorded first where nothing like it has been recorded."""
        session = self._session
        if not session.fits([trial.inputs]):
            session.record([trial.inputs], warm_inputs(used, trial.inputs), trial.expected, (1,), used.changed_state)
        wrong = session.mismatch(trial.expected)
        if wrong is not None:
            return wrong
        session.write([trial.inputs])
        self.call_us.append(session.run().calls_us)
        return None

    def _left(self, used: Reference, trial: Trial) -> Mismatch | None:
        """What a call left in its inputs and in the state."""
        after = self._session.inputs(trial.inputs, 0)
        wrong = wrong_inputs(trial, after, used.facts["returned_inputs"], self._limit)
        if wrong is not None or not trial.state_after:
            return wrong
        left = self._session.left(trial.state_after)
        self.findings += lacking_state(used, trial.state_after, left)
        return wrong_state(trial, left, self._limit)


def warm_inputs(used: Reference, like: list[Any]) -> list[Any]:
    """Inputs for the calls before a recording.

    Inputs of other shapes than the task draws, as some calls of `stress` have, are used themselves: noise could leave
    the domain of the task.
    """
    found = used.inputs(WARM)
    return found if [*map(_shape, found)] == [*map(_shape, like)] else like


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, torch.Tensor) else None
