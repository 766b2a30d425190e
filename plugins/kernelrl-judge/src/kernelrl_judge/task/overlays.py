"""Overlays of inputs: factors that make shortcuts fail which pass on inputs of one sign and size.

Floating-point inputs are multiplied; what is zero stays zero, and integers stay as they are. The factors come from the
generator that made the inputs, so they are equal for equal seeds.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["OVERLAYS", "overlaid"]

OVERLAYS = ("signed", "row_scaled", "heavy_tailed", "mixed")
"""Names, the mildest first."""

_ROW_OCTAVES = 3.0
"""Rows are scaled by up to two to this power, up or down."""


def overlaid(value: Any, kind: str) -> Any:
    """Inputs under an overlay, in the structure they had."""
    if isinstance(value, torch.Tensor):
        return value.detach() * _factors(value, kind) if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)(overlaid(item, kind) for item in value)
    if isinstance(value, dict):
        return {key: overlaid(item, kind) for key, item in value.items()}
    return value


def _factors(tensor: torch.Tensor, kind: str) -> torch.Tensor:
    factors = torch.ones((), dtype=tensor.dtype, device=tensor.device)
    if kind in ("signed", "mixed"):
        factors = factors * (torch.rand_like(tensor).lt(0.5).to(tensor.dtype) * 2 - 1)
    if kind in ("heavy_tailed", "mixed"):
        factors = factors * torch.randn_like(tensor).exp()
    if kind in ("row_scaled", "mixed"):
        rows = torch.rand((*tensor.shape[:-1], 1)[: tensor.dim()], device=tensor.device, dtype=torch.float32)
        factors = factors * torch.exp2((rows * 2 - 1) * _ROW_OCTAVES).to(tensor.dtype)
    return factors
