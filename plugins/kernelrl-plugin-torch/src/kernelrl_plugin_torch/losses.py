"""Losses on tokens.

`importance_sampling` is -ratio * A. `ppo` is the clipped surrogate of Schulman et al. 2017 with separate bounds below
and above (Yu et al. 2025, clip-higher), -min(ratio * A, clip(ratio, 1 - low, 1 + high) * A). `cispo` (MiniMax 2025)
clips the ratio as a weight and keeps every token's gradient, -sg(clip(ratio, 1 - low, 1 + high)) * A * log p. All are
sums over tokens. All can take the ratio of the whole reply in place of each token's, exp of the mean of its tokens'
log-ratios (Zheng et al. 2025, GSPO, arXiv 2507.18071). `cross_entropy`, -A * log p, is supervised learning with A as
the token's weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kernelrl_core.api.errors import UsageError
from kernelrl_plugin_torch.config import LOSSES

__all__ = ["TokenLoss", "token_loss"]


class TokenLoss(NamedTuple):
    """Loss of each token and what it was made of, all [n_tokens]."""

    loss: Tensor
    ratio: Tensor
    """Probability now over probability when sampled, without gradient."""
    clipped: Tensor
    """Tokens whose ratio was clipped: `ppo` gives them no gradient, `cispo` a smaller one."""


def token_loss(
    name: str,
    logprobs: Tensor,
    sampled: Tensor,
    advantages: Tensor,
    bounds: tuple[float, float],
    lengths: Sequence[int] | None = None,
) -> TokenLoss:
    """Loss of each token.

    Args:
        name: one of `LOSSES`, or `cross_entropy`.
        logprobs: [n_tokens] under the present weights, with gradient.
        sampled: [n_tokens] under the weights that sampled.
        advantages: [n_tokens].
        bounds: of the ratio, for `ppo` and `cispo`.
        lengths: of the replies, whose sum is n_tokens: each token takes the ratio of its reply. None: its own.

    Raises:
        UsageError: unknown loss.
    """
    if name == "cross_entropy":
        ones = torch.ones_like(advantages)
        return TokenLoss(-advantages * logprobs, ones, torch.zeros_like(ones, dtype=torch.bool))
    gaps = logprobs - sampled
    if lengths is not None:
        gaps = torch.cat([gap.mean().expand(len(gap)) for gap in gaps.split(list(lengths)) if len(gap)])
    ratio = gaps.exp()
    bounded = ratio.clamp(*bounds)
    plain = ratio * advantages
    if name == "importance_sampling":
        return TokenLoss(-plain, ratio.detach(), torch.zeros_like(ratio, dtype=torch.bool))
    if name == "ppo":
        clipped = bounded * advantages
        return TokenLoss(-torch.minimum(plain, clipped), ratio.detach(), (clipped < plain).detach())
    if name == "cispo":
        return TokenLoss(-bounded.detach() * advantages * logprobs, ratio.detach(), (bounded != ratio).detach())
    raise UsageError(f"train.loss: unknown loss {name!r}; there are {', '.join(sorted(LOSSES))}")
