"""Losses of tokens. p is the probability of a token under the trainer's weights, `ratio` is p divided by the sampler's
probability, A the advantage, sg stops the gradient.

    importance_sampling  -ratio * A
    ppo                  -min(ratio * A, clip(ratio, 1 - low, 1 + high) * A)
                         (Schulman et al. 2017, with separate bounds: Yu et al. 2025, clip-higher)
    cispo                -sg(clip(ratio, 1 - low, 1 + high)) * A * log p
                         (MiniMax 2025; clipped tokens keep a gradient)
    dro                  -(A * log p - beta / 2 * log(ratio)^2)
                         (Richemond et al. 2024, arXiv 2405.19107; a quadratic penalty in place of clipping)
    cross_entropy        -A * log p: supervised training, with A as the token's weight

The loss of a batch is the sum over its tokens. The first three can use one ratio for the whole reply: s is exp of the
mean log-ratio of its tokens, and each token's ratio is sg(s / p) * p (Zheng et al. 2025, GSPO-token, arXiv 2507.18071).
With `ppo` this is the loss that Tinker calls `gspo`.
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
    """Loss, ratio and clipping of each token, all [n_tokens]."""

    loss: Tensor
    """With gradient."""
    ratio: Tensor
    """Trainer probability divided by sampler probability, without gradient."""
    clipped: Tensor
    """True where the ratio was clipped: `ppo` then has no gradient, `cispo` a smaller one."""


def token_loss(
    name: str,
    logprobs: Tensor,
    sampled: Tensor,
    advantages: Tensor,
    bounds: tuple[float, float],
    lengths: Sequence[int] | None = None,
    *,
    counted: Tensor | None = None,
    beta: float = 0.0,
) -> TokenLoss:
    """Loss of each token; see the formulas of this module.

    Args:
        name: one of `LOSSES`, `dro` or `cross_entropy`.
        logprobs: [n_tokens] trainer log-probabilities, with gradient; for `cross_entropy` also [n_tokens, n_targets].
        sampled: [n_tokens] sampler log-probabilities.
        advantages: the shape of `logprobs`.
        bounds: lower and upper bound of the ratio (1 - low, 1 + high), for `ppo` and `cispo`.
        lengths: lengths of the replies, with the sum n_tokens: tokens use the ratio of their reply. None: their own.
        counted: [n_tokens] True for the tokens whose mean is the ratio of a reply; None: all.
        beta: weight of the penalty of `dro`.

    Raises:
        UsageError: unknown loss.
    """
    if name == "cross_entropy":
        ones = torch.ones(len(advantages), device=advantages.device)
        return TokenLoss(-advantages * logprobs, ones, torch.zeros_like(ones, dtype=torch.bool))
    gaps = logprobs - sampled
    if name == "dro":
        loss = beta / 2 * gaps.square() - advantages * logprobs
        return TokenLoss(loss, gaps.detach().exp(), torch.zeros_like(gaps, dtype=torch.bool))
    if lengths is not None:
        gaps = _of_replies(gaps.detach(), lengths, counted) + (logprobs - logprobs.detach())
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


def _of_replies(gaps: Tensor, lengths: Sequence[int], counted: Tensor | None) -> Tensor:
    """[n_tokens] mean log-ratio of each token's reply over its counted tokens."""
    counts = torch.ones_like(gaps, dtype=torch.bool) if counted is None else counted
    replies = zip(gaps.split(list(lengths)), counts.split(list(lengths)), strict=True)
    return torch.cat([gap[count].mean().expand(len(gap)) for gap, count in replies if len(gap)])
