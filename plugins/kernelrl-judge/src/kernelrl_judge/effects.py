"""What a call leaves in its inputs and in the state of its module, against what the reference leaves there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from kernelrl_core.values import Mismatch
from kernelrl_judge.comparing import Tolerance, compare_bytes, compare_values
from kernelrl_judge.protocol import ProtocolError
from kernelrl_judge.reference import Trial
from kernelrl_judge.trees import leaves

__all__ = ["wrong_inputs", "wrong_memory", "wrong_state"]


def wrong_inputs(trial: Trial, after: Any, shares: Collection[list[int]], limit: Tolerance) -> Mismatch | None:
    """How inputs after a call, whose description is that of those before it, are not what the reference leaves.

    An input that the reference works on in place and returns may stay as it was: its new values are in the output.

    Args:
        shares: tensors of the reference that have memory in common, from `sharing.shared_memory`.
    """
    if trial.inputs_after is None:
        wrong = compare_bytes(trial.inputs, after)
        return None if wrong is None else Mismatch("inputs", wrong.output)
    returned = {-1 - pair[1] for pair in shares if pair[1] < 0}
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


def wrong_state(trial: Trial, after: Mapping[str, torch.Tensor], limit: Tolerance) -> Mismatch | None:
    """How the state after a call is not what the reference leaves, among what is in both."""
    for name, want in trial.state_after.items():
        wrong = compare_values(want, after[name], limit) if name in after else None
        if wrong is not None:
            return Mismatch("effects", f"state {name}", max_abs=wrong.max_abs, wrong_share=wrong.wrong_share)
    return None


def wrong_memory(shares: Any, allowed: Collection[list[int]]) -> Mismatch | None:
    """Which outputs lie in memory that those of the reference do not share.

    Args:
        shares: what `sharing.shared_memory` gave; from an untrusted process.
        allowed: the same of the reference.
    """
    for pair in shares if isinstance(shares, list) else (None,):
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair)):
            raise ProtocolError("not pairs of tensors")
        if pair not in allowed:
            other = f"output {pair[1]}" if pair[1] >= 0 else f"input {-1 - pair[1]}"
            return Mismatch("memory", f"[{pair[0]}]", expected="memory of its own", actual=f"that of {other}")
    return None
