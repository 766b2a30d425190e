"""Copies of the outputs of calls to their places: the same code on both sides of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelrl_judge.protocol.trees import tensors

__all__ = ["copy_outputs"]


def copy_outputs(places: list[torch.Tensor], values: Any) -> None:
    """Copy the tensors of outputs to their places, one place for each tensor in the order of the outputs.

    Raises:
        TypeError: the number of tensors, or the shape or dtype of a tensor, differs from that of the places.
    """
    found = tensors(values)
    if len(found) != len(places):
        raise TypeError("forward returned a different number of tensors than before")
    try:
        if found:
            sources = [tensor.detach() if tensor.requires_grad else tensor for tensor in found]
            torch._foreach_copy_(places, sources)
    finally:
        # A GPU copies while the shapes are checked.
        _check(found, places)


def _check(found: Sequence[torch.Tensor], places: Sequence[torch.Tensor]) -> None:
    for tensor, place in zip(found, places, strict=True):
        if tensor.shape != place.shape or tensor.dtype is not place.dtype:
            raise TypeError("forward returned a tensor of another shape or dtype than before") from None
