"""What a call of the probe `stress` leaves in its inputs and in the state of its module.

What a reference changes there only on some values, such as a count of what overflows, ordinary inputs do not show.
It is compared like an output: with what the reference leaves in double precision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Mismatch
from kernelrl_judge.probes.stress_calls import StressCall, judged
from kernelrl_judge.protocol.trees import leaves
from kernelrl_judge.task.comparing import compare_bytes
from kernelrl_judge.task.reference import Trial

__all__ = ["left_in_inputs", "left_in_state"]


def left_in_inputs(
    call: StressCall, after: Any, returned: Collection[int], settings: EvaluationSettings, dtype: torch.dtype
) -> Mismatch | None:
    """How inputs after a call are not what the reference leaves; their description is that of those before it.

    Args:
        returned: numbers of the inputs that the reference returns.
    """
    known = call.left.trial.expected if call.left is not None else {}
    found = {}
    number = -1
    for path, sent, got, _ in leaves(call.trial.inputs, after, after):
        if not isinstance(sent, torch.Tensor):
            continue
        number += 1
        same = compare_bytes(sent, got) is None
        if f"input {path}" not in known:
            if not same:
                return Mismatch("inputs", path)
        elif not (same and number in returned):
            found[f"input {path}"] = got
    return _compared(call, found, settings, dtype)


def left_in_state(
    call: StressCall, after: Mapping[str, torch.Tensor], settings: EvaluationSettings, dtype: torch.dtype
) -> Mismatch | None:
    """How state after a call is not what the reference leaves, among what is in both."""
    return _compared(call, {f"state {name}": tensor for name, tensor in after.items()}, settings, dtype)


def _compared(
    call: StressCall, after: Mapping[str, torch.Tensor], settings: EvaluationSettings, dtype: torch.dtype
) -> Mismatch | None:
    if call.left is None:
        return None
    for name, bound in zip(call.left.trial.expected, call.left.bounds, strict=True):
        if name not in after:
            continue
        one = attrs.evolve(
            call.left,
            trial=Trial([], call.left.trial.expected[name]),
            exact=call.left.exact[name],
            bounds=(bound,),
        )
        wrong = judged(one, after[name], settings, dtype).wrong
        if wrong is not None:
            return attrs.evolve(wrong, kind="effects", output=name)
    return None
