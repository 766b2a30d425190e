"""Probes of direct calls: each changes a call, or compares what the call left.

Each probe has a module of its own: `addresses`, `inputs`, `operators`, `order`, `poison`, `state`. The probes with
calls of their own are `parameters`, `stress` and `no_op` (a runner whose kernels are off, `kernelrl_judge.judge.plan`).
"""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import torch

from kernelrl_core.api.evaluators import Finding, Mismatch
from kernelrl_judge.protocol.call import Call
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.trial import Trial

__all__ = ["CallEffects", "DirectCall", "Probe"]


@attrs.frozen
class DirectCall:
    """A direct call, as a probe sees it."""

    reference: Reference
    """The reference with the candidate's parameters."""
    trial: Trial
    device: str
    fits: bool = False
    """Whether its inputs may stay in memory beside those of the next call."""
    number: int = 0
    """Number of the call, from 1 on."""
    is_trial: bool = False
    """False: a call on harder inputs, of which the outputs alone are compared."""
    is_last: bool = True
    threads: int | None = None
    """Number of threads, 0 for that of the backend; None: the probe `order` chooses it."""
    compares_inputs: bool = False
    counts_operators: bool = True
    """False: a call on other sizes, for which a kernel may call a library."""


@attrs.frozen
class CallEffects:
    """Effects of a call besides its outputs."""

    inputs: Any = None
    """Inputs after the call; None where they were not read back."""
    state: dict[str, torch.Tensor] = attrs.field(factory=dict)
    operators: Any = None
    """List of the runner; None where operators were not listed."""


class Probe:
    """One probe. An object serves one candidate."""

    name: ClassVar[str]
    """Name in `evaluation.probes`."""
    findings: tuple[Finding, ...] = ()
    """Findings that do not end the evaluation."""

    def order(self, order: Call, call: DirectCall) -> Call:
        """The call with the changes of this probe."""
        return order

    def compare(self, call: DirectCall, effects: CallEffects) -> Mismatch | None:
        """Mismatch after a call whose outputs are right; None if there is none."""
        return None
