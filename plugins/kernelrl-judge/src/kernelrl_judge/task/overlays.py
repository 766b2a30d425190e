"""Overlays of inputs: factors that make shortcuts fail which pass on inputs of one sign and size.

Floating-point inputs that are drawn are multiplied. Inputs with a structure and integers stay as they are
(`kernelrl_judge.task.domain`). The factors come from the generator that made the inputs, so they are equal for equal
seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelrl_judge.protocol.trees import mapped
from kernelrl_judge.task.domain import Domain

__all__ = ["OVERLAYS", "overlaid"]

OVERLAYS = ("signed", "row_scaled", "heavy_tailed", "mixed")
"""Names, the mildest first."""

_ROW_OCTAVES = 3.0
"""Rows are scaled by up to two to this power, up or down."""


def overlaid(values: list[Any], kind: str, domains: Sequence[Domain]) -> list[Any]:
    """The inputs of a call under an overlay.

    Args:
        domains: that of each tensor.
    """
    places = iter(domains)

    def multiplied(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach() * _factors(tensor, kind) if next(places).overlaid else tensor

    return [mapped(value, multiplied) for value in values]


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
