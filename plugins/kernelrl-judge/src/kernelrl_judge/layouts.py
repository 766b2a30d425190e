"""How tensors lie in memory: inputs have the strides that a task gives them, in a candidate as in the reference."""

from __future__ import annotations

import torch

from kernelrl_judge.protocol import TensorLeaf

__all__ = ["distinct", "laid_out", "laid_out_as", "strides_of"]


def strides_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Strides of a tensor, in elements; None where it is contiguous."""
    return None if tensor.is_contiguous() or not tensor.numel() else tuple(tensor.stride())


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
