"""Probe `order`: races between threads of the CPU, and between programs of Triton's interpreter."""

from __future__ import annotations

import attrs

from kernelrl_judge.probes.probe import DirectCall, Probe
from kernelrl_judge.protocol.call import Call

__all__ = ["OrderProbe"]


class OrderProbe(Probe):
    """The last call has more threads, or programs in random order."""

    name = "order"

    def order(self, order: Call, call: DirectCall) -> Call:
        return attrs.evolve(order, changes_order=call.is_last and call.device == "cpu")
