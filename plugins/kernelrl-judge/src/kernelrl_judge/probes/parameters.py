"""Parameters that a kernel ignores or copies from the constructor."""

from __future__ import annotations

from collections.abc import Callable

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.protocol.trees import leaves_bytes
from kernelrl_judge.task.parameters import Matched, drawn_parameters
from kernelrl_judge.task.reference import Reference

__all__ = ["Parameters"]

_MAX_STATE_BYTES = 1 << 30


class Parameters:
    """The first trial has drawn parameters.

    Args:
        construct: has the candidate construct its model with the parameters of a reference; returns how these were
            found.
    """

    name = "parameters"

    def __init__(self, settings: EvaluationSettings, construct: Callable[[Reference], Matched]) -> None:
        self._construct = construct
        self._is_on = settings.profile == "strict" and self.name in settings.probes and settings.trials > 1

    def constructed(self, reference: Reference, index: int) -> Reference:
        """Have the candidate construct its model for a trial, where it has not yet; returns the reference with the
        parameters that it has."""
        draws = self._is_on and 0 < leaves_bytes(reference.state) < _MAX_STATE_BYTES
        if draws and index == 0:
            # Parameters of other names are found by the values of the constructor, so these come first.
            used = drawn_parameters(reference, self._construct(reference.with_other_parameters()))
            self._construct(used)
            return used
        if index == int(draws):
            self._construct(reference)
        return reference
