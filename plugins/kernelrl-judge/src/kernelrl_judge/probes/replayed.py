"""Trials, harder inputs and the share of own kernels by replays: each call is one replay on inputs that the judge
writes into the input slot.

The list of nodes comes from the runner, where native code of a candidate could forge it (`docs/security.md`). It cannot
forge the output of the replay with the candidate's own kernels disabled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Finding, Mismatch
from kernelrl_judge.peer.replay import CandidateSession
from kernelrl_judge.probes.inputs import wrong_inputs
from kernelrl_judge.probes.parameters import Parameters
from kernelrl_judge.probes.probe import Found
from kernelrl_judge.probes.state import lacking_state, wrong_state
from kernelrl_judge.probes.stress import Judged, StressCall, judged
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.protocol.limits import LIMITS
from kernelrl_judge.task.comparing import Tolerance, compare_values, tolerance
from kernelrl_judge.task.parameters import Matched
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.reference import WARM, Reference, Trial

__all__ = ["ReplayTrials", "ownership", "warm_inputs"]

_SHOWN = 16
_PASSES = 3


def ownership(
    session: CandidateSession, trials: Sequence[Trial], limit: Tolerance
) -> tuple[dict[str, Any], tuple[Finding, ...]]:
    """Facts for the profile of an evaluation, and findings. The last passes of a runner.

    `own_kernel_share`: share of the device time that is gone without the candidate's own kernels.
    `library_kernel_share`: of the rest, the share of library kernels among the launches that are not own.
    `device_kernels`: names, launches and origins. `library_kernels`: names.

    Args:
        trials: two, of different inputs: what the pass with all kernels leaves is wrong in the pass without them.
    """
    calls = len(session.described)
    library = [name for name, kind, _ in session.nodes if kind == "library"]
    launches = {kind: sum(count for _, of, count in session.nodes if of == kind) for kind in ("own", "library", "glue")}
    shown = [
        {"name": name, "origin": kind, "calls": max(1, count // calls)}
        for name, kind, count in sorted(session.nodes, key=lambda row: -row[2])[:_SHOWN]
    ]

    def fastest_us(trial: Trial) -> float:
        # Others use the device, too.
        session.write([trial.inputs] * calls)
        return min(session.run().calls_us for _ in range(_PASSES))

    with_us = fastest_us(trials[0])
    session.switch(0, own=False)
    without_us = fastest_us(trials[1])
    own_share = min(1.0, max(0.0, 1 - without_us / max(with_us, 1e-9))) if launches["own"] else 0.0
    others = launches["library"] + launches["glue"]
    library_share = (1 - own_share) * launches["library"] / others if others else 0.0
    facts = {
        "device_kernels": shown,
        "own_kernel_share": own_share,
        "library_kernel_share": library_share,
        "library_kernels": library[:4],
    }
    if library_share > LIMITS.library_time_share:
        facts["computing_operators"] = library[:_SHOWN]
    if not launches["own"]:
        return facts, ()
    trial = trials[1]
    right = compare_values(trial.expected, session.output(trial.expected, 0), limit) is None
    if not right or trial.comes_by_itself:
        return facts, ()
    named = ", ".join([name for name, kind, _ in session.nodes if kind == "own"][:4])
    evidence = f"the output is right although {named} did not run"
    return facts, (finding("decoy_kernels", evidence),)


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
