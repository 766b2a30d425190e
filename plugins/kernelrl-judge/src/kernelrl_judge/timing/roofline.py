"""The roofline of a task: the least time that its bytes and operations take on a device.

Model of S. Williams, A. Waterman and D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52 (2009).

`memory_floor_us` is a lower bound for every kernel: only bytes count that decide the output. An element is replaced by
NaN, and the reference is called again: if its output is the same, the element need not be read. A sample of elements of
each tensor gives the share that matters, of which the lower end of a 97.5 % interval is taken (Wilson 1927). Integers
and truth values are not replaced, because they may be indices, and do not count.
"""

from __future__ import annotations

import math

import torch

from kernelrl_core.api.evaluators import Roofline
from kernelrl_judge.device.ceilings import Ceilings
from kernelrl_judge.protocol.trees import tensors, total_bytes
from kernelrl_judge.task.comparison import compare_bytes
from kernelrl_judge.task.input_indices import LEARNED, MEMORY_FLOOR
from kernelrl_judge.task.operation_counter import OperationCounter
from kernelrl_judge.task.reference import Reference, Work

__all__ = ["bytes_that_matter", "count_work", "memory_floor_us", "roofline"]

_SAMPLES = 48
_MIN_SHARE = 0.05
"""Share of the bytes of a call below which a tensor does not count."""
_QUANTILE = 1.96


def roofline(reference: Reference, runtime_us: float, ceilings: Ceilings) -> Roofline:
    """Run time of a task compared with its least possible time.

    Compulsory bytes are those of all inputs, parameters and outputs, each once. Operations are those of the matrix
    products and convolutions of the reference, as torch counts them; others are few in comparison, or move as many
    bytes as they do operations.
    """
    work = count_work(reference)
    moved, flops = work.moved_bytes, work.flops
    floor_us = max(moved / ceilings.bandwidth_gb_s / 1e3, flops / ceilings.tflops / 1e6)
    seconds = runtime_us * 1e-6
    bandwidth_gb_s = moved / seconds / 1e9
    tflops = flops / seconds / 1e12
    return Roofline(
        compulsory_bytes=float(moved),
        flops=float(flops),
        bandwidth_gb_s=ceilings.bandwidth_gb_s,
        tflops=ceilings.tflops,
        floor_us=floor_us,
        achieved_bandwidth_gb_s=bandwidth_gb_s,
        bandwidth_share=bandwidth_gb_s / ceilings.bandwidth_gb_s,
        achieved_tflops=tflops,
        flop_share=tflops / ceilings.tflops,
    )


def count_work(reference: Reference) -> Work:
    """Bytes and operations of a task, counted once. Needs no exclusive device."""
    known = reference.facts.work
    if known is not None:
        return known
    inputs = reference.inputs(LEARNED)
    with OperationCounter() as counter:
        reference.expected(inputs)
    work = Work(total_bytes([inputs, reference.state, reference.like]), counter.flops)
    reference.facts.work = work
    return work


def memory_floor_us(reference: Reference, calls: int, bandwidth_gb_s: float, cache_bytes: int) -> float:
    """Least time of a call, in microseconds, in a window of calls on distinct inputs that begins with cold caches.

    Inputs of each call are read from memory, parameters once; outputs are written as far as they exceed the cache.

    Args:
        calls: number of calls of the window.
        bandwidth_gb_s: measured, in 10^9 bytes per second.
        cache_bytes: size of the last cache before the memory.
    """
    inputs, parameters = bytes_that_matter(reference)
    written = max(0, calls * total_bytes(reference.like) - cache_bytes)
    return (calls * inputs + parameters + written) / calls / bandwidth_gb_s / 1e3


def bytes_that_matter(reference: Reference) -> tuple[int, int]:
    """Bytes of the inputs of a call, and of the parameters, that decide the output; measured once for a task."""
    if reference.facts.bytes_that_matter is None:
        reference.facts.bytes_that_matter = _measured_bytes(reference)
    return reference.facts.bytes_that_matter


def _measured_bytes(reference: Reference) -> tuple[int, int]:
    inputs = reference.inputs(MEMORY_FLOOR)
    before = reference.expected(inputs)
    own = reference.model.state_dict()
    groups = [tensors(inputs), tensors(own)]
    least = _MIN_SHARE * sum(map(_storage, [tensor for group in groups for tensor in group]))
    generator = torch.Generator().manual_seed(0)

    def matters(tensor: torch.Tensor, place: int) -> bool:
        flat = tensor.detach().view(-1)
        kept = flat[place].clone()
        flat[place] = math.nan
        # The call restores the parameters and never changes the inputs.
        changed = compare_bytes(before, reference.expected(inputs)) is not None
        flat[place] = kept
        return changed

    def share(tensor: torch.Tensor) -> float:
        places = torch.randint(tensor.numel(), (_SAMPLES,), generator=generator).tolist()
        return _lower_end(sum(matters(tensor, place) for place in places), _SAMPLES)

    found = []
    for group in groups:
        countable = [t for t in group if t.is_floating_point() and t.is_contiguous() and _storage(t) > least]
        found.append(int(sum(share(tensor) * _storage(tensor) for tensor in countable)))
    return found[0], found[1]


def _lower_end(hits: int, count: int) -> float:
    """Lower end of Wilson's interval for a share."""
    share, square = hits / count, _QUANTILE**2
    middle = share + square / (2 * count)
    half = _QUANTILE * math.sqrt(share * (1 - share) / count + square / (4 * count**2))
    return max(0.0, (middle - half) / (1 + square / count))


def _storage(tensor: torch.Tensor) -> int:
    """Bytes of the memory of a tensor: a broadcast one has fewer than its elements."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
