"""Computation by torch's operators in place of the candidate's kernels."""

from __future__ import annotations

import attrs

from kernelrl_core.api.evaluators import Mismatch
from kernelrl_judge.peer.computing import computing
from kernelrl_judge.probes.probe import After, DirectCall, Probe
from kernelrl_judge.protocol.call import Call

__all__ = ["Operators"]


class Operators(Probe):
    """Torch's operators are listed in every call."""

    name = "operators"

    def __init__(self) -> None:
        self.found: list[str] | None = None
        """Those that computed; None before the first call that counts."""

    def order(self, order: Call, call: DirectCall) -> Call:
        return attrs.evolve(order, lists_operators=True)

    def judge(self, call: DirectCall, after: After) -> Mismatch | None:
        if call.counts:
            names = computing(after.operators, call.trial.inputs, call.trial.expected)
            self.found = [*dict.fromkeys([*(self.found or ()), *names])]
        return None
