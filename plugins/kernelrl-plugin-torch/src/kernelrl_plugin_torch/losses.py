"""Policy-gradient losses on tokens.

`importance_sampling` is -ratio * A. `ppo` is the clipped surrogate of Schulman et al. 2017 with separate bounds below
and above (Yu et al. 2025, clip-higher), -min(ratio * A, clip(ratio, 1 - low, 1 + high) * A). Both are sums over tokens;
the divisor is the caller's.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kernelrl_core.errors import UsageError
from kernelrl_core.kinds import LossSettings

__all__ = ["LOSSES", "TokenLoss", "token_loss"]

LOSSES = frozenset({"importance_sampling", "ppo"})


class TokenLoss(NamedTuple):
    """Loss of each token and what it was made of, all [n_tokens]."""

    loss: Tensor
    ratio: Tensor
    """Probability now over probability when sampled, without gradient."""
    clipped: Tensor
    """Tokens whose gradient the clip took away."""


def token_loss(logprobs: Tensor, sampled: Tensor, advantages: Tensor, settings: LossSettings) -> TokenLoss:
    """Loss of each token.

    Args:
        logprobs: [n_tokens] under the present weights, with gradient.
        sampled: [n_tokens] under the weights that sampled.
        advantages: [n_tokens].

    Raises:
        UsageError: unknown loss.
    """
    ratio = (logprobs - sampled).exp()
    plain = ratio * advantages
    if settings.name == "importance_sampling":
        return TokenLoss(-plain, ratio.detach(), torch.zeros_like(ratio, dtype=torch.bool))
    if settings.name == "ppo":
        clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high) * advantages
        return TokenLoss(-torch.minimum(plain, clipped), ratio.detach(), (clipped < plain).detach())
    raise UsageError(f"train.loss: unknown loss {settings.name!r}; policy torch knows {', '.join(sorted(LOSSES))}")
