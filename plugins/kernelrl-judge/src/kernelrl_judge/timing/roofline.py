"""The least time a task can take on a device: the bytes it must move and the operations it must do, over the ceilings.

Model of S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52 (2009).
"""

from __future__ import annotations

from kernelrl_judge.peer.device_facts import Ceilings
from kernelrl_judge.protocol.trees import total_bytes
from kernelrl_judge.task.input_indices import LEARNED
from kernelrl_judge.task.operations import OperationCounter
from kernelrl_judge.task.reference import Reference

__all__ = ["count_work", "roofline"]


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
    moved = total_bytes([inputs, reference.state, reference.like])
    with OperationCounter() as counter:
        reference.expected(inputs)
    return moved, counter.flops
