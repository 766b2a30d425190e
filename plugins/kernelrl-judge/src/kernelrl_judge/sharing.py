"""Which tensors lie in the same memory: judge and runner look at outputs and inputs of a call with the same code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import torch

from kernelrl_judge.trees import tensors

__all__ = ["OF_MODULE", "extent", "held_bytes", "overlaps_anywhere", "overlaps_itself", "shared_memory"]

OF_MODULE = -(1 << 30)
"""In the place of an input: parameters and buffers of the module."""
_MOST_BYTES = 1 << 30


def shared_memory(outputs: Any, inputs: Any, held: Iterable[torch.Tensor] = ()) -> list[list[int]]:
    """Pairs of tensors of a call that have an element in common.

    Args:
        held: parameters and buffers of the module that was called.

    Returns:
        `[i, j]` for outputs i < j, `[i, -1 - j]` for output i and input j, each counted among its tensors, and
        `[i, OF_MODULE]` for output i and one of those that are held.
    """
    made, given = tensors(outputs), tensors(inputs)
    return [
        *([i, j] for i, j in combinations(range(len(made)), 2) if _overlap(made[i], made[j])),
        *([i, -1 - j] for i, j in product(range(len(made)), range(len(given))) if _overlap(made[i], given[j])),
        *([i, OF_MODULE] for i in _within(made, held)),
    ]


def _within(made: list[torch.Tensor], held: Iterable[torch.Tensor]) -> list[int]:
    """Which tensors have an element in common with one of those that are held, of which there may be hundreds."""
    extents = [extent(tensor) if tensor.layout is torch.strided else (0, 0) for tensor in made]
    found: set[int] = set()
    for other in held:
        begin, end = extent(other) if other.layout is torch.strided else (0, 0)
        near = [index for index, (first, last) in enumerate(extents) if first < end and begin < last]
        found.update(index for index in near if _overlap(made[index], other))
    return sorted(found)


def _overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.device != second.device or torch.strided is not first.layout or torch.strided is not second.layout:
        return False
    if not first.numel() or not second.numel():
        return False
    (begin, end), (other_begin, other_end) = extent(first), extent(second)
    if end <= other_begin or other_end <= begin:
        return False
    if first.is_contiguous() and second.is_contiguous():
        return True
    # Columns of one block lie between each other.
    low, high = min(begin, other_begin), max(end, other_end)
    if high - low > _MOST_BYTES:
        return False
    with contextlib.suppress(torch.OutOfMemoryError, MemoryError):
        mask = torch.zeros(high - low, dtype=torch.bool, device=first.device)
        _bytes(mask, first, begin - low).fill_(True)
        return bool(_bytes(mask, second, other_begin - low).any())
    return False


def held_bytes(outputs: Any, others: Any) -> int:
    """Bytes of the memory that is not given back as long as there are outputs.

    Args:
        others: tensors whose memory is there all the same.
    """
    # A list of functions by which elements leave torch would have this among them.
    with torch._C.DisableTorchFunction():
        known, found = _storages(others), _storages(outputs)
    return sum(size for begin, size in found.items() if begin not in known)


def _storages(values: Any) -> dict[int, int]:
    """Bytes by the place where they begin."""
    storages = [tensor.untyped_storage() for tensor in tensors(values) if tensor.layout is torch.strided]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether elements of a tensor share their memory, as those of one that was expanded or unfolded do."""
    if tensor.layout is not torch.strided or tensor.is_contiguous() or not tensor.numel():
        return False
    sizes = sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)
    last, is_nested = 0, True
    for stride, size in sizes:
        is_nested &= stride > last
        last += stride * (size - 1)
    if is_nested or tensor.numel() > last + 1 or sizes[0][0] == 0:
        return not is_nested
    if last >= _MOST_BYTES:
        return False
    mask = torch.zeros(last + 1, dtype=torch.bool)
    mask.as_strided(tensor.shape, tensor.stride()).fill_(True)
    return int(mask.sum()) < tensor.numel()


def overlaps_anywhere(value: Any) -> bool:
    """Whether `overlaps_itself` holds of a tensor of a value."""
    if isinstance(value, torch.Tensor):
        return overlaps_itself(value)
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list | tuple) and any(map(overlaps_anywhere, value))


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of the first byte, and of that after the last."""
    begin = tensor.data_ptr()
    if tensor.is_contiguous() or not tensor.numel():
        return begin, begin + tensor.numel() * tensor.element_size()
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()


def _bytes(mask: torch.Tensor, tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """The part of a mask of bytes that a tensor takes."""
    width = tensor.element_size()
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    sizes = [(size if stride else 1, stride * width) for size, stride in pairs]
    return mask.as_strided(
        [*(size for size, _ in sizes), width], [*(stride for _, stride in sizes), 1], mask.storage_offset() + offset
    )
