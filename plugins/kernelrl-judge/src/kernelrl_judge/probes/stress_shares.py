"""Rows of shares, which sum to one, with zeros among them, for the probe `stress`."""

from __future__ import annotations

import torch

__all__ = ["shares_along", "with_zeros"]

_CLOSE = 1e-3
_ZEROS = 1 / 4


def shares_along(tensor: torch.Tensor) -> int | None:
    """The axis, of the last and the second, along which an input sums to one; None if there is none."""
    if not tensor.is_floating_point() or not tensor.dim() or bool((tensor < 0).any()):
        return None
    for axis in (-1, min(1, tensor.dim() - 1)):
        if tensor.shape[axis] > 1 and bool(((tensor.float().sum(axis) - 1).abs() < _CLOSE).all()):
            return axis
    return None


def with_zeros(tensor: torch.Tensor, axis: int, masks: dict[torch.Size, torch.Tensor]) -> torch.Tensor:
    """Shares, a quarter of them zero, but for the largest; the others are so much larger that they sum to one.

    Args:
        masks: which are zero, by shape: where a share of one input is zero, that of another may have to be.
    """
    if tensor.shape not in masks:
        masks[tensor.shape] = torch.rand_like(tensor, dtype=torch.float32) < _ZEROS
    zeros = masks[tensor.shape]
    kept = torch.where(zeros & (tensor < tensor.amax(axis, keepdim=True)), 0.0, tensor)
    return (kept / kept.sum(axis, keepdim=True)).to(tensor.dtype)
