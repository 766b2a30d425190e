"""The calls of the probe `stress` of one candidate, from its parameters to what is said of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection
from typing import Any

import attrs

from kernelrl_core.values import EvaluationSettings, Finding
from kernelrl_judge import stress, wording
from kernelrl_judge.dialogue import CandidateFailed, Dialogue
from kernelrl_judge.layouts import leaves_bytes
from kernelrl_judge.reference import Reference
from kernelrl_judge.running import DeadlinePassed, Runner, RunnerEnded
from kernelrl_judge.stress_calls import StressCall
from kernelrl_judge.trials import Trials

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
        self.used: Reference | None = None
        """Whose parameters the candidate has, where it is None those that it had."""
        self.harsh: list[StressCall] = []
        """Calls for its timed windows, where it is to be timed and has passed."""

    def run(self, calls: Trials, reference: Reference, found: Matched, seed: str, known: Collection[Finding]) -> bool:
        """Make the calls; returns whether the candidate ended in one.

        Args:
            calls: those that were made of it before.
            found: how its parameters came to be the reference's.
            seed: of the inputs of timed calls.
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
        wrong, ratios, ended = None, [], False
        left = stress.untried(reference, self._settings, made)
        parts = [call.part for call in made if call.part != "sizes"]
        few = sum(map(leaves_bytes, (made[0].trial.inputs, made[0].trial.expected))) <= _FEW_BYTES
        part = made[0].part
        try:
            if used is not reference:
                self._construct(used)
                self.used = used
            while made:
                # What was compared is not kept: on a device the candidate needs the memory, too.
                call = made.pop(0)
                part = call.part
                judged = calls.stressed(call, used, self._settings)
                if judged.error_ratio is not None:
                    ratios.append(judged.error_ratio)
                if judged.wrong is not None:
                    wrong = part, wording.incorrect(judged.wrong)
                    break
            if used is not reference and self._settings.timing:
                self._construct(reference)
                self.used = reference
        except CandidateFailed as failed:
            if failed.failure.kind == "memory":
                # The judge holds much of it just then: the candidate may have the device to itself.
                if not self._dialogue.alone:
                    raise
                self._profile["stress"] = f"not decided: {part} needs more memory than is left beside the reference"
                if used is not reference and self._settings.timing:
                    self._construct(reference)
                    self.used = reference
                return False
            wrong, ended = (part, wording.failure(failed.failure)), True
        except DeadlinePassed:
            wrong, ended = (part, wording.timeout(self._settings.timeout_s)), True
        except RunnerEnded as ending:
            wrong, ended = (part, wording.ended(str(ending))[1]), True
        ratio = max(ratios, default=None)
        concluded, said = stress.concluded(self._settings, wrong, ratio)
        self._profile["stress"] = f"{said}, but for {left}" if left and said == "passed" else said
        told = [finding for finding in calls.findings if finding not in (*known, *self.findings)]
        self.findings = (*self.findings, *told, *concluded)
        if ratio is not None:
            self._profile["error_ratio"] = round(ratio, 2)
        if self._settings.timing and self._settings.timing_method == "window" and wrong is None:
            parts = parts if few else parts and [secrets.choice(parts)]
            # Like those that were passed, on other inputs and with the parameters that the candidate has.
            self.harsh = stress.prepared(reference.under(seed), self._settings, spread=False, only=parts)[1]
        return ended
