"""Input overlays: random factors under which shortcuts fail that pass on inputs of one sign and size.

Floating-point inputs that are random draws are multiplied. Integers and inputs with a structure are unchanged
(`kernelrl_judge.task.domain`). The factors come from the random number generator of the inputs, so equal seeds give
equal factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelrl_judge.protocol.trees import mapped
from kernelrl_judge.task.domain import Domain

__all__ = ["OVERLAYS", "overlaid"]

OVERLAYS = ("signed", "row_scaled", "heavy_tailed", "mixed")
"""Names of the overlays, the mildest first."""

_ROW_OCTAVES = 3.0
"""Binary logarithm of the largest factor of a row; the smallest factor is its reciprocal."""


def overlaid(values: list[Any], kind: str, domains: Sequence[Domain]) -> list[Any]:
    """The inputs of a call under an overlay.

    Args:
        domains: domain of each tensor.
    """
    remaining = iter(domains)

    def multiplied(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach() * _factors(tensor, kind) if next(remaining).overlaid else tensor

    return [mapped(value, multiplied) for value in values]


def _factors(tensor: torch.Tensor, kind: str) -> torch.Tensor:
    factors = torch.ones((), dtype=tensor.dtype, device=tensor.device)
    if kind in ("signed", "mixed"):
        signs = torch.rand_like(tensor).lt(0.5).to(tensor.dtype) * 2 - 1
        factors = factors * signs
    if kind in ("heavy_tailed", "mixed"):
        factors = factors * torch.randn_like(tensor).exp()
    if kind in ("row_scaled", "mixed"):
        rows = torch.rand((*tensor.shape[:-1], 1)[: tensor.dim()], device=tensor.device, dtype=torch.float32)
        factors = factors * torch.exp2((rows * 2 - 1) * _ROW_OCTAVES).to(tensor.dtype)
    return factors
