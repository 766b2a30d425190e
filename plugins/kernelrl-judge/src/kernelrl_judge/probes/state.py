"""Probe `state`: parameters and buffers after a call, compared with those that the reference leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import Finding, Mismatch
from kernelrl_judge.findings import finding
from kernelrl_judge.probes.probe import CallEffects, DirectCall, Probe
from kernelrl_judge.protocol.call import Call
from kernelrl_judge.task.comparison import Tolerance, compare_bytes, compare_values
from kernelrl_judge.task.located import located
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.trial import Trial

__all__ = ["StateProbe", "missing_state", "state_mismatch"]


class StateProbe(Probe):
    """The state that the reference changes is read back after every trial, in every evaluation.

    Args:
        limit: tolerance for its values.
    """

    name = "state"

    def __init__(self, limit: Tolerance) -> None:
        self._limit = limit

    def order(self, order: Call, call: DirectCall) -> Call:
        changed = call.reference.changed_state if call.is_trial else {}
        described = {
            name: [str(tensor.dtype).removeprefix("torch."), [*tensor.shape]] for name, tensor in changed.items()
        }
        return attrs.evolve(order, returned_state=described)

    def compare(self, call: DirectCall, effects: CallEffects) -> Mismatch | None:
        if not call.is_trial:
            return None
        if not self.findings:
            self.findings = missing_state(call.reference, call.trial.state_after, effects.state)
        return state_mismatch(call.trial, effects.state, self._limit)


def state_mismatch(trial: Trial, after: Mapping[str, torch.Tensor], limit: Tolerance) -> Mismatch | None:
    """Difference between the state after a call and that of the reference, among tensors that both have."""
    for name, want in trial.state_after.items():
        wrong = compare_values(want, after[name], limit) if name in after else None
        if wrong is not None:
            wrong = located(wrong, want, after[name], limit)
            return attrs.evolve(wrong, kind="effects", output=f"state {name}")
    return None


def missing_state(
    reference: Reference, left: Mapping[str, torch.Tensor], after: Mapping[str, Any]
) -> tuple[Finding, ...]:
    """A finding for a kernel without a tensor for state that calls of the reference change.

    A buffer that is neither saved nor read by later calls may be scratch memory and does not count.

    Args:
        left: state that the reference leaves.
        after: state that the candidate has.
    """
    before = reference.constructed
    absent = sorted(left.keys() - after.keys())
    changed = [name for name in absent if compare_bytes(left[name], before[name]) is not None]
    missing = [name for name in changed if name in reference.state or reference.reads(name)]
    if not missing:
        return ()
    evidence = f"the reference's calls change its state, {', '.join(missing[:4])}, which the kernel has not"
    return (finding("effects", evidence),)
