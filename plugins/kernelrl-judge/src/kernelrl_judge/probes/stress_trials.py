"""The calls of the probe `stress` of one candidate, from its parameters to what is said of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, Protocol

import attrs

from kernelrl_core.api.evaluators import EvaluationSettings, Finding
from kernelrl_judge.peer.dialogue import CandidateFailed, Dialogue
from kernelrl_judge.peer.process import DeadlinePassed, Runner, RunnerEnded
from kernelrl_judge.probes import messages, stress
from kernelrl_judge.probes.stress_calls import Judged, StressCall
from kernelrl_judge.task.reference import Reference

__all__ = ["Matched", "StressTrials", "matched"]

_FEW_BYTES = 16 << 20
"""Inputs and outputs of a call, of which timed calls under stress are of every kind; of larger ones they are of one."""


@attrs.frozen
class Matched:
    """How a candidate's parameters came to be the reference's."""

    takes_parameters: bool = False
    """It has a place for each of them."""
    alike: bool = False
    """Some have other names, so that those of equal values cannot be told apart."""
    lacking: frozenset[str] = frozenset()
    """Names of those that it has no place for."""


def matched(note: Any, reference: Reference) -> Matched:
    """What a runner's note on its parameters says; from an untrusted process."""
    if not isinstance(note, dict):
        return Matched(lacking=frozenset(reference.state))
    names = note.get("names")
    lacking = frozenset(reference.state).difference(map(str, names if isinstance(names, list) else ()))
    return Matched(note.get("matched") == len(reference.state), note.get("renamed") != 0, lacking)


@attrs.frozen
class _Outcome:
    """How a candidate's calls went."""

    wrong: tuple[str, str] | None
    """The part that failed, and how."""
    ratios: list[float]
    """Of errors, of the calls that were judged."""
    ended: bool = False
    """Whether the candidate ended in one."""

    @property
    def ratio(self) -> float | None:
        """The largest."""
        return max(self.ratios, default=None)


class Calls(Protocol):
    """Makes single calls: `trials.Trials`, or `replay.trials.ReplayTrials`."""

    findings: tuple[Finding, ...]

    def stressed(self, call: StressCall, used: Reference, settings: EvaluationSettings) -> Judged: ...


class StressTrials:
    """Makes the calls.

    Args:
        profile: told what was tried, and what was not.
        construct: has the candidate construct its model with the parameters of a reference.
    """

    def __init__(
        self,
        runner: Runner,
        dialogue: Dialogue,
        settings: EvaluationSettings,
        profile: dict[str, Any],
        construct: Callable[[Reference], object],
    ) -> None:
        self._runner = runner
        self._dialogue = dialogue
        self._settings = settings
        self._profile = profile
        self._construct = construct
        self.findings: tuple[Finding, ...] = ()
        """What is to be said of the candidate."""

    def run(self, calls: Calls, reference: Reference, found: Matched, known: Collection[Finding]) -> bool:
        """Make the calls; returns whether the candidate ended in one.

        Args:
            calls: those that were made of it before.
            found: how its parameters came to be the reference's.
            known: what is said of it already.
        """
        if found.lacking:
            self.findings = tuple(stress.untested(reference, self._settings, found.lacking))
        used, made, reason = stress.prepared(
            reference, self._settings, spread=found.takes_parameters, alike=found.alike
        )
        if reason:
            self._profile["stress_left"] = reason
        if not made:
            self._profile["stress"] = f"not tried: {reason}"
            return False
        self._runner.deadline = time.monotonic() + self._settings.timeout_s
        left = stress.untried(reference, self._settings, made)
        outcome = self._tried(calls, made, used, reference)
        if outcome is None:
            return False
        concluded, said = stress.concluded(self._settings, outcome.wrong, outcome.ratio)
        self._profile["stress"] = f"{said}, but for {left}" if left and said == "passed" else said
        told = [finding for finding in calls.findings if finding not in (*known, *self.findings)]
        self.findings = (*self.findings, *told, *concluded)
        if outcome.ratio is not None:
            self._profile["error_ratio"] = round(outcome.ratio, 2)
        return outcome.ended

    def _tried(self, calls: Calls, made: list[StressCall], used: Reference, reference: Reference) -> _Outcome | None:
        """Make calls until one fails; None where nothing is decided.

        Args:
            made: taken out one after the other: on a device the candidate needs the memory, too.
            used: whose parameters the candidate is to have meanwhile.
        """
        part, wrong = made[0].part, None
        ratios: list[float] = []
        try:
            if used is not reference:
                self._construct(used)
            while made and wrong is None:
                call = made.pop(0)
                part = call.part
                judged = calls.stressed(call, used, self._settings)
                if judged.error_ratio is not None:
                    ratios.append(judged.error_ratio)
                if judged.wrong is not None:
                    wrong = part, messages.incorrect(judged.wrong)
            self._return_to(reference, used)
        except CandidateFailed as failed:
            if failed.failure.kind != "memory":
                return _Outcome((part, messages.failure(failed.failure)), ratios, ended=True)
            # The judge holds much of it just then: the candidate may have the device to itself.
            if not self._dialogue.alone:
                raise
            self._profile["stress"] = f"not decided: {part} needs more memory than is left beside the reference"
            self._return_to(reference, used)
            return None
        except DeadlinePassed:
            return _Outcome((part, messages.timeout(self._settings.timeout_s)), ratios, ended=True)
        except RunnerEnded as ending:
            return _Outcome((part, messages.ended(str(ending))[1]), ratios, ended=True)
        return _Outcome(wrong, ratios)

    def _return_to(self, reference: Reference, used: Reference) -> None:
        """Have timed calls made with the parameters of the task."""
        if used is not reference and self._settings.timing:
            self._construct(reference)
