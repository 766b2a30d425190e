"""Probe `operators`: computation by torch's operators in place of the candidate's kernels."""

from __future__ import annotations

import attrs

from kernelrl_core.api.evaluators import Mismatch
from kernelrl_judge.probes.computing import computing_operators
from kernelrl_judge.probes.probe import CallEffects, DirectCall, Probe
from kernelrl_judge.protocol.call import Call

__all__ = ["OperatorsProbe"]


class OperatorsProbe(Probe):
    """Torch's operators are listed in every call."""

    name = "operators"

    def __init__(self) -> None:
        self.computing: tuple[str, ...] | None = None
        """Operators that computed; None before the first call that counts."""

    def order(self, order: Call, call: DirectCall) -> Call:
        return attrs.evolve(order, lists_operators=True)

    def compare(self, call: DirectCall, effects: CallEffects) -> Mismatch | None:
        if call.counts_operators:
            names = computing_operators(effects.operators, call.trial.inputs, call.trial.expected)
            known = self.computing or ()
            self.computing = tuple(dict.fromkeys((*known, *names)))
        return None
