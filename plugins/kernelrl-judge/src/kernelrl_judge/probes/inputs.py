"""Probe `inputs`: inputs after a call, compared with those that the reference leaves."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import Mismatch
from kernelrl_judge.probes.probe import CallEffects, DirectCall, Probe
from kernelrl_judge.protocol.call import Call
from kernelrl_judge.protocol.trees import leaves
from kernelrl_judge.task.comparison import Tolerance, compare_bytes, compare_values
from kernelrl_judge.task.located import located
from kernelrl_judge.task.trial import Trial

__all__ = ["InputsProbe", "inputs_mismatch"]


class InputsProbe(Probe):
    """Inputs are read back after the call.

    Args:
        limit: tolerance for inputs that the reference changes.
    """

    name = "inputs"

    def __init__(self, limit: Tolerance) -> None:
        self._limit = limit

    def order(self, order: Call, call: DirectCall) -> Call:
        return attrs.evolve(order, returns_inputs=call.compares_inputs and call.fits)

    def compare(self, call: DirectCall, effects: CallEffects) -> Mismatch | None:
        if effects.inputs is None:
            return None
        return inputs_mismatch(call.trial, effects.inputs, call.reference.facts.returned_inputs or (), self._limit)


def inputs_mismatch(trial: Trial, after: Any, returned: Collection[int], limit: Tolerance) -> Mismatch | None:
    """Difference between inputs after a call and those that the reference leaves.

    An input that the reference changes in place and returns may stay as it was: its new values are in the output.

    Args:
        after: inputs after the call, with the structure, shapes and dtypes of those before it.
        returned: numbers of the inputs that the reference returns.
    """
    if trial.inputs_after is None:
        wrong = compare_bytes(trial.inputs, after)
        return None if wrong is None else Mismatch("inputs", wrong.output)
    number = -1
    for path, sent, want, got in leaves(trial.inputs, trial.inputs_after, after):
        if not isinstance(sent, torch.Tensor):
            continue
        number += 1
        is_unchanged = compare_bytes(sent, got) is None
        if compare_bytes(sent, want) is None:
            if not is_unchanged:
                return Mismatch("inputs", path)
        elif not (is_unchanged and number in returned):
            wrong = compare_values(want, got, limit)
            if wrong is not None:
                wrong = located(wrong, want, got, limit)
                return attrs.evolve(wrong, kind="effects", output=f"input {path}")
    return None
