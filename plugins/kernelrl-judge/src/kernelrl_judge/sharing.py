"""Which tensors lie in the same memory: judge and runner look at outputs and inputs of a call with the same code."""

from __future__ import annotations

import contextlib
from itertools import combinations, product
from typing import Any

import torch

from kernelrl_judge.trees import tensors

__all__ = ["shared_memory"]

_MOST_BYTES = 1 << 30


def shared_memory(outputs: Any, inputs: Any) -> list[list[int]]:
    """Pairs of tensors of a call that have an element in common.

    Returns:
        `[i, j]` for outputs i < j, and `[i, -1 - j]` for output i and input j; each counted among its tensors.
    """
    made, given = tensors(outputs), tensors(inputs)
    return [
        *([i, j] for i, j in combinations(range(len(made)), 2) if _overlap(made[i], made[j])),
        *([i, -1 - j] for i, j in product(range(len(made)), range(len(given))) if _overlap(made[i], given[j])),
    ]


def _overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.device != second.device or torch.strided is not first.layout or torch.strided is not second.layout:
        return False
    (begin, end), (other_begin, other_end) = _extent(first), _extent(second)
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


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of the first byte, and of that after the last."""
    begin = tensor.data_ptr()
    if not tensor.numel():
        return begin, begin
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
