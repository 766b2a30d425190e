"""Rows that inputs have in common, for the probe `stress`.

Half of the rows of a later input are those of an earlier one of the same kind, every second of these but for its last
bits; of rows of norm one some are opposite. Of sorted rows some neighbours are equal. Where the reference asks whether
tensors are equal, other rows differ in one element, or have two elements exchanged, and an input has such rows among
its own as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

__all__ = ["has_twins", "off_alike", "with_ties", "with_twins"]

_NEARLY = 2.0**-21
"""Share of a number by which it is off where rows are equal but for their last bits."""
_LEAST_ROWS = 8
_MIXING = 0x9E3779B1


def has_twins(inputs: Iterable[torch.Tensor]) -> bool:
    """Whether two inputs may have rows in common."""
    kinds = [_kind(tensor) for tensor in inputs if tensor.dim()]
    return len(set(kinds)) < len(kinds)


def with_ties(tensor: torch.Tensor) -> torch.Tensor:
    """Sorted rows, of which every fourth element is equal to the one before it."""
    found = tensor.clone()
    found[..., 1::4] = tensor[..., : tensor.shape[-1] - 1 : 4]
    return found


def with_twins(
    tensor: torch.Tensor, others: dict[Any, torch.Tensor], *, alike: bool, opposite: bool = False
) -> torch.Tensor:
    """An input with rows of another, or of its own.

    Args:
        others: inputs that came before, by what two need to have rows in common; this one is added.
        alike: whether the reference asks what is equal.
        opposite: whether some rows are minus those of another.
    """
    if not tensor.dim():
        return tensor
    other = others.get(_kind(tensor))
    if other is not None:
        tensor = _with_rows(tensor, other, alike)
        if opposite:
            rows = min(len(other), len(tensor))
            tensor[1:rows:8] = -other[1:rows:8]
        return tensor
    half = len(tensor) // 2
    if alike and len(tensor) >= _LEAST_ROWS:
        tensor = torch.cat([tensor[:half], _with_rows(tensor[half:], tensor[:half], alike)])
    others[_kind(tensor)] = tensor
    return tensor


def _with_rows(tensor: torch.Tensor, other: torch.Tensor, alike: bool) -> torch.Tensor:
    rows = min(len(other), len(tensor))
    found = tensor.clone()
    found[:rows:4] = other[:rows:4]
    if tensor.is_floating_point():
        # Equal numbers may cancel exactly, in whatever order.
        near = other[2:rows:4]
        found[2:rows:4] = torch.addcmul(near, near, torch.rand_like(near) - 0.5, value=_NEARLY)
    if alike and tensor.dim() > 1 and tensor[0].numel() > 1:
        found[1:rows:4] = _with_one(other[1:rows:4], tensor[1:rows:4])
        found[3:rows:4] = _exchanged(other[3:rows:4])
    return found


def _with_one(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Rows, each with one element of another, anywhere."""
    found = rows.flatten(1).clone()
    every, place = torch.arange(len(found), device=rows.device), _places(found)
    found[every, place] = others.flatten(1)[every, place]
    return found.view(rows.shape)


def _exchanged(rows: torch.Tensor) -> torch.Tensor:
    """Rows, each with two elements exchanged that are a power of two apart, or a simple share of the row."""
    found = rows.flatten(1).clone()
    width = found.shape[1]
    powers = {1 << bits for bits in range(width.bit_length()) if 1 << bits < width}
    apart = sorted(powers | {width // share for share in (2, 3, 4) if width >= share})
    every = torch.arange(len(found), device=rows.device)
    left = _places(found)
    right = (left + torch.tensor(apart, device=rows.device)[every % len(apart)]) % width
    found[every, left], found[every, right] = found[every, right], found[every, left]
    return found.view(rows.shape)


def _places(rows: torch.Tensor) -> torch.Tensor:
    return torch.randint(rows.shape[1], (len(rows),), device=rows.device)


def off_alike(tensor: torch.Tensor) -> torch.Tensor:
    """Numbers between -1 and 1, the same for the same number in single precision: what is equal stays equal."""
    bits = tensor.contiguous().view(torch.int32).long()
    mixed = (bits ^ (bits >> 15)) * _MIXING
    return ((mixed ^ (mixed >> 13)) & 0xFFFFFF).float() / 0x800000 - 1


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape[1:], tensor.dim()
