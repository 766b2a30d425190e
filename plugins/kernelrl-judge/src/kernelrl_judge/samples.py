"""Samples of large tensors, which judge and runner take with the same code."""

from __future__ import annotations

from typing import Any

__all__ = ["MOST", "sampled"]

MOST = 1 << 18
"""Elements of a sample."""


def sampled(value: Any, begin: int) -> Any:
    """A value with elements at regular distances in the place of each tensor that has more than a sample.

    Args:
        begin: which of the first elements is among them; below 0 for all of them.
    """
    if begin < 0:
        return value
    if isinstance(value, list | tuple):
        return type(value)(sampled(item, begin) for item in value)
    if isinstance(value, dict):
        return {key: sampled(item, begin) for key, item in value.items()}
    if not hasattr(value, "numel") or value.numel() <= MOST:
        return value
    import torch

    step = -(-value.numel() // MOST)
    if value.is_contiguous():
        return value.view(-1)[begin % step :: step]
    places = torch.arange(begin % step, value.numel(), step, device=value.device)
    # A tensor of other strides need not be copied.
    return value[torch.unravel_index(places, value.shape)]
