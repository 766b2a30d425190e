"""Probe `poison`: outputs that a kernel allocates and does not write."""

from __future__ import annotations

import attrs

from kernelrl_judge.probes.probe import DirectCall, Probe
from kernelrl_judge.protocol.call import Call
from kernelrl_judge.protocol.trees import tensors

__all__ = ["PoisonProbe"]

_POISON_BYTES = {"cuda": (0xFF, 0x7B), "cpu": (0xFE, 0x7B)}
"""First NaN in every floating-point type (on the CPU a large negative number), then a large number."""


class PoisonProbe(Probe):
    """Free memory is filled with one pattern, in the next call with another."""

    name = "poison"

    def order(self, order: Call, call: DirectCall) -> Call:
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors(call.trial.expected)]
        return attrs.evolve(order, poison=_POISON_BYTES[call.device][call.number % 2], poisoned_bytes=sizes)
