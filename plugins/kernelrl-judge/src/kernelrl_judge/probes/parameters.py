"""Probe `parameters`: parameters that a kernel ignores, copies from the constructor, or reads in some calls only."""

from __future__ import annotations

from collections.abc import Callable

from kernelrl_judge.protocol.trees import leaves_bytes
from kernelrl_judge.task.drawn_parameters import ParameterDraws, drawn_parameters
from kernelrl_judge.task.parameter_match import ParameterMatch
from kernelrl_judge.task.reference import Reference

__all__ = ["construct_with_draws"]

_MAX_STATE_BYTES = 1 << 30


def construct_with_draws(reference: Reference, construct: Callable[[Reference], ParameterMatch]) -> ParameterDraws:
    """Have the candidate construct its model; returns the draws of the parameters of its calls.

    Without the probe, all calls have the parameters that the constructor of the reference sets.

    Args:
        construct: has the candidate construct its model with the parameters of a reference.
    """
    settings = reference.settings
    is_on = settings.profile == "strict" and "parameters" in settings.probes and settings.trials > 1
    if is_on and 0 < leaves_bytes(reference.state) < _MAX_STATE_BYTES:
        # Parameters with other names are matched by the values of the constructor.
        return drawn_parameters(reference, construct(reference.with_other_parameters()))
    return ParameterDraws(reference, reference, construct(reference))
