"""Outputs that a kernel allocates and does not write."""

from __future__ import annotations

import attrs

from kernelrl_judge.probes.probe import DirectCall, Probe
from kernelrl_judge.protocol.call import Call
from kernelrl_judge.protocol.trees import tensors

__all__ = ["Poison"]

_BYTES = {"cuda": (0xFF, 0x7B), "cpu": (0xFE, 0x7B)}
"""NaN in every floating-point type, or a large negative number; and a large number."""


class Poison(Probe):
    """Free memory holds one pattern, then another."""

    name = "poison"

    def order(self, order: Call, call: DirectCall) -> Call:
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors(call.trial.expected)]
        return attrs.evolve(order, poison=_BYTES[call.device][call.index % 2], poisoned_bytes=sizes)
