"""Probe `parameters`: parameters that a kernel ignores or copies from the constructor."""

from __future__ import annotations

from collections.abc import Callable

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.protocol.trees import leaves_bytes
from kernelrl_judge.task.drawn_parameters import drawn_parameters
from kernelrl_judge.task.parameter_match import ParameterMatch
from kernelrl_judge.task.reference import Reference

__all__ = ["ParametersProbe"]

_MAX_STATE_BYTES = 1 << 30


class ParametersProbe:
    """The first trial has drawn parameters.

    Args:
        construct: has the candidate construct its model with the parameters of a reference.
    """

    name = "parameters"

    def __init__(self, settings: EvaluationSettings, construct: Callable[[Reference], ParameterMatch]) -> None:
        self._construct = construct
        self._is_on = settings.profile == "strict" and self.name in settings.probes and settings.trials > 1

    def construct_for(self, reference: Reference, index: int) -> Reference:
        """Construct the candidate for a trial, if its parameters change; returns the reference with the same
        parameters."""
        draws = self._is_on and 0 < leaves_bytes(reference.state) < _MAX_STATE_BYTES
        if draws and index == 0:
            # Parameters with other names are matched by the values of the constructor, so these come first.
            used = drawn_parameters(reference, self._construct(reference.with_other_parameters()))
            self._construct(used)
            return used
        if index == int(draws):
            self._construct(reference)
        return reference
