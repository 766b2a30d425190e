"""What a probe of direct calls is: what a call does beside computing, and what is judged of it.

Each is a class in a module of its own: `addresses`, `inputs`, `operators`, `order`, `poison`, `state`. The probes with
calls of their own are in `parameters`, `stress` and `no_op`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import attrs
import torch

from kernelrl_core.api.evaluators import Finding, Mismatch
from kernelrl_judge.protocol.call import Call
from kernelrl_judge.task.reference import Reference, Trial

__all__ = ["After", "DirectCall", "Found", "Probe"]


@attrs.frozen
class DirectCall:
    """A call, as a probe sees it."""

    reference: Reference
    """With the parameters that the candidate has."""
    trial: Trial
    device: str
    fits: bool
    """Whether its inputs may stay in memory beside those of the next call."""
    index: int = 0
    """Of the trial."""
    is_trial: bool = False
    """Otherwise it has harder inputs, and its outputs alone are compared."""
    is_last: bool = True
    compares_inputs: bool = False
    counts: bool = True
    """Whether it shows who computes: the first call of a model may prepare what later ones use."""


@attrs.frozen
class After:
    """What a call did beside returning outputs."""

    inputs: Any = None
    """None where they were not returned."""
    state: dict[str, torch.Tensor] = attrs.field(factory=dict)
    operators: Any = None
    """As the runner listed them; None where they were not listed."""


@attrs.frozen
class Found:
    """What the trials gave."""

    passed: int
    wrong: Mismatch | None = None
    """The first trial's that failed."""
    other_parameters: bool = False
    """Whether that trial had parameters of its own."""
    finding: Finding | None = None
    final: bool = False
    """Whether further trials would tell nothing more."""


class Probe:
    """One probe. An object serves one candidate."""

    name: ClassVar[str]
    """In `evaluation.probes`."""
    findings: tuple[Finding, ...] = ()
    """Suspicions that are no verdict."""

    def order(self, order: Call, call: DirectCall) -> Call:
        """The call with what this probe needs."""
        return order

    def judge(self, call: DirectCall, after: After) -> Mismatch | None:
        """What is wrong after a call whose outputs are right."""
        return None
