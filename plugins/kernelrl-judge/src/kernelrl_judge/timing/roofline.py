"""The least time a task can take on a device: the bytes it must move and the operations it must do, over the ceilings.

Model of S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52 (2009).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelrl_judge.peer.device_facts import Ceilings
from kernelrl_judge.task.input_indices import LEARNED
from kernelrl_judge.task.reference import Reference

__all__ = ["OperationCounter", "count_work", "roofline"]


def roofline(reference: Reference, runtime_us: float, ceilings: Ceilings) -> dict[str, float]:
    """How near a run time is to the least possible.

    Compulsory bytes are those of all inputs, parameters and outputs, each once. Operations are those of the matrix
    products and convolutions of the reference, as torch counts them; others are few in comparison, or move as many
    bytes as they do operations.
    """
    count_work(reference)
    moved, flops = reference.facts["work"]
    floor_us = max(moved / ceilings.bandwidth_gb_s / 1e3, flops / ceilings.tflops / 1e6)
    seconds = runtime_us * 1e-6
    return {
        "compulsory_bytes": float(moved),
        "flops": float(flops),
        "bandwidth_gb_s": ceilings.bandwidth_gb_s,
        "tflops": ceilings.tflops,
        "floor_us": floor_us,
        "achieved_bandwidth_gb_s": moved / seconds / 1e9,
        "bandwidth_share": moved / seconds / 1e9 / ceilings.bandwidth_gb_s,
        "achieved_tflops": flops / seconds / 1e12,
        "flop_share": flops / seconds / 1e12 / ceilings.tflops,
    }


def count_work(reference: Reference) -> None:
    """Note the bytes and the operations of a task among its facts, if that was never done; nobody needs to be alone."""
    if "work" not in reference.facts:
        reference.facts["work"] = _work(reference)


def _work(reference: Reference) -> tuple[int, int]:
    inputs = reference.inputs(LEARNED)
    moved = _bytes(inputs) + _bytes(reference.state) + _bytes(reference.like)
    with OperationCounter() as counter:
        reference.expected(inputs)
    return moved, counter.flops


class OperationCounter(TorchDispatchMode):
    """Counts floating-point operations by torch's formulas. torch's own `FlopCounterMode` imports its compiler first,
    which takes seconds in each judge."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # To keep torch's compiler away from this class would be to import it.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils.flop_counter import flop_registry

        found = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.flops += count(*args, **(kwargs or {}), out_val=found)
        return found


def _bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, list | tuple):
        return sum(map(_bytes, value))
    if isinstance(value, dict):
        return sum(map(_bytes, value.values()))
    return 0
