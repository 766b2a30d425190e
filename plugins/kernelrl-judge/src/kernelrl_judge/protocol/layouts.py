"""Where tensors lie in shared memory, one after the other.

Inputs have the strides and the alignment that a task gives them, in a candidate as in the reference.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.trees import mapped
from kernelrl_judge.protocol.values import TensorLeaf

__all__ = ["ALIGNMENT", "Laid", "cloned", "distinct", "laid_out", "laid_out_as", "lay_out", "leaves_bytes", "places"]

ALIGNMENT = 256
"""Bytes: a tensor without an offset begins at a multiple."""


def laid_out(leaf: TensorLeaf, memory: torch.Tensor) -> torch.Tensor:
    """A view of memory of as many elements as a leaf spans."""
    return memory.view(leaf.shape) if leaf.strides is None else memory.as_strided(leaf.shape, leaf.strides)


def laid_out_as(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Values in the layout of a tensor of their shape; what repeats there repeats here."""
    if not values.numel() or values.stride() == like.stride():
        return values
    leaf = TensorLeaf("", tuple(values.shape), "", 0, tuple(like.stride()))
    found = torch.empty(leaf.span, dtype=values.dtype, device=values.device).as_strided(leaf.shape, like.stride())
    distinct(found).copy_(distinct(values, like))
    return found


def distinct(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """The tensor without its repetitions along dimensions that it, or another of its shape, was expanded by."""
    strides = (tensor if like is None else like).stride()
    found = tensor
    for place in [place for place, stride in enumerate(strides) if stride == 0 and tensor.shape[place] > 1]:
        found = found.narrow(place, 0, 1)
    return found


def cloned(value: Any) -> Any:
    """A copy of the value, in which tensors keep their layouts."""
    return mapped(value, lambda tensor: laid_out_as(tensor.clone(), tensor))


@attrs.frozen
class Laid:
    """How values lie one after the other."""

    tree: Any
    """`TensorLeaf` in the place of each tensor."""
    end: int
    """Bytes in all."""
    chunks: list[tuple[TensorLeaf, torch.Tensor]]
    """Each tensor with its place."""


def lay_out(values: Any, device: str, end: int = 0, *, strided: bool = True) -> Laid:
    """Give each tensor its place on a device, one after the other from `end` on.

    Args:
        strided: keep the strides of tensors, and how they are aligned.
    """
    chunks: list[tuple[TensorLeaf, torch.Tensor]] = []

    def place(tensor: torch.Tensor) -> TensorLeaf:
        nonlocal end
        name, width = str(tensor.dtype).removeprefix("torch."), tensor.element_size()
        offset, strides = end, None
        if strided and tensor.numel():
            offset += tensor.storage_offset() * width % ALIGNMENT
            strides = None if tensor.is_contiguous() else tuple(tensor.stride())
        leaf = TensorLeaf(name, tuple(tensor.shape), device, offset, strides)
        chunks.append((leaf, tensor.detach()))
        end = -(-(offset + leaf.span * width) // ALIGNMENT) * ALIGNMENT
        return leaf

    return Laid(mapped(values, place, key=str), end, chunks)


def places(expected: Any, copies: int, device: str) -> tuple[list[Any], int]:
    """Where the outputs of several equal calls belong: a tree of `TensorLeaf` for each call, and the bytes in all."""
    laid = lay_out([expected] * copies, device, strided=False)
    return laid.tree, laid.end


def leaves_bytes(value: Any) -> int:
    """Bytes that the tensors of a value need in the shared memory."""
    return lay_out(value, "cpu", strided=False).end
