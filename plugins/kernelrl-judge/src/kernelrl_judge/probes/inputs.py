"""Inputs that a call changes, against those that the reference changes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import Mismatch
from kernelrl_judge.probes.probe import After, DirectCall, Probe
from kernelrl_judge.protocol.call import Call
from kernelrl_judge.protocol.trees import leaves
from kernelrl_judge.task.comparing import Tolerance, compare_bytes, compare_values
from kernelrl_judge.task.reference import Trial

__all__ = ["Inputs", "wrong_inputs"]


class Inputs(Probe):
    """Inputs are read back after the call.

    Args:
        limit: for those that the reference changes.
    """

    name = "inputs"

    def __init__(self, limit: Tolerance) -> None:
        self._limit = limit

    def order(self, order: Call, call: DirectCall) -> Call:
        return attrs.evolve(order, returns_inputs=call.compares_inputs and call.fits)

    def judge(self, call: DirectCall, after: After) -> Mismatch | None:
        if after.inputs is None:
            return None
        return wrong_inputs(call.trial, after.inputs, call.reference.facts["returned_inputs"], self._limit)


def wrong_inputs(trial: Trial, after: Any, returned: Collection[int], limit: Tolerance) -> Mismatch | None:
    """How inputs after a call, whose description is that of those before it, are not what the reference leaves.

    An input that the reference works on in place and returns may stay as it was: its new values are in the output.

    Args:
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
        same = compare_bytes(sent, got) is None
        if compare_bytes(sent, want) is None:
            if not same:
                return Mismatch("inputs", path)
        elif not (same and number in returned):
            wrong = compare_values(want, got, limit)
            if wrong is not None:
                return Mismatch("effects", f"input {path}", max_abs=wrong.max_abs, wrong_share=wrong.wrong_share)
    return None
