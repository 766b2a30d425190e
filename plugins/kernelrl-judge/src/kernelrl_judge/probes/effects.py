"""Compares inputs and state after a call with those that the reference leaves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from kernelrl_core.api.evaluators import Finding, Mismatch
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.protocol.trees import leaves
from kernelrl_judge.task.comparing import Tolerance, compare_bytes, compare_values
from kernelrl_judge.task.reference import Reference, Trial

__all__ = ["described_tensors", "lacking_state", "wrong_inputs", "wrong_state"]


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


def wrong_state(trial: Trial, after: Mapping[str, torch.Tensor], limit: Tolerance) -> Mismatch | None:
    """How the state after a call is not what the reference leaves, among what is in both."""
    for name, want in trial.state_after.items():
        wrong = compare_values(want, after[name], limit) if name in after else None
        if wrong is not None:
            return Mismatch("effects", f"state {name}", max_abs=wrong.max_abs, wrong_share=wrong.wrong_share)
    return None


def described_tensors(state: Mapping[str, torch.Tensor]) -> dict[str, list[Any]]:
    """Type and shape of what a runner is to hand back, by name."""
    return {name: [str(tensor.dtype).removeprefix("torch."), [*tensor.shape]] for name, tensor in state.items()}


def lacking_state(
    reference: Reference, left: Mapping[str, torch.Tensor], after: Mapping[str, Any]
) -> tuple[Finding, ...]:
    """What is to be said of a kernel that has nothing where a call of the reference left something new in its state.

    A buffer that is neither saved nor read by later calls may be scratch memory, which nobody else needs.
    """
    before = reference.constructed
    lacking = [
        name for name in sorted(left.keys() - after.keys()) if compare_bytes(left[name], before[name]) is not None
    ]
    lacking = [name for name in lacking if name in reference.state or reference.reads(name)]
    if not lacking:
        return ()
    evidence = f"the reference's calls change its state, {', '.join(lacking[:4])}, which the kernel has not"
    return (finding("effects", evidence),)
