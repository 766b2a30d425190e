"""Compares inputs and state after a call with those that the reference leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import Finding, Mismatch
from kernelrl_judge.probes.probe import After, DirectCall, Probe
from kernelrl_judge.protocol.call import Call
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.task.comparing import Tolerance, compare_bytes, compare_values
from kernelrl_judge.task.reference import Reference, Trial

__all__ = ["State", "lacking_state", "wrong_state"]


class State(Probe):
    """The state that the reference changes is read back after a trial; in every evaluation.

    Args:
        limit: for its values.
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

    def judge(self, call: DirectCall, after: After) -> Mismatch | None:
        if not call.is_trial:
            return None
        if not self.findings:
            self.findings = lacking_state(call.reference, call.trial.state_after, after.state)
        return wrong_state(call.trial, after.state, self._limit)


def wrong_state(trial: Trial, after: Mapping[str, torch.Tensor], limit: Tolerance) -> Mismatch | None:
    """How the state after a call is not what the reference leaves, among what is in both."""
    for name, want in trial.state_after.items():
        wrong = compare_values(want, after[name], limit) if name in after else None
        if wrong is not None:
            return Mismatch("effects", f"state {name}", max_abs=wrong.max_abs, wrong_share=wrong.wrong_share)
    return None


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
