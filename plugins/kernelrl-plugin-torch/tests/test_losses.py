"""Losses on numbers worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from kernelrl_core.errors import UsageError
from kernelrl_plugin_torch.losses import token_loss


def _one(ratio: float, advantage: float, settings) -> tuple[float, float, bool]:
    """Loss, derivative by the log-probability, and whether the clip took the gradient."""
    logprobs = torch.tensor([math.log(ratio)], requires_grad=True)
    tokens = token_loss(logprobs, torch.zeros(1), torch.tensor([advantage]), settings)
    tokens.loss.sum().backward()
    return tokens.loss.item(), logprobs.grad.item(), bool(tokens.clipped)


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope", "clipped"),
    [
        (1.5, 1.0, -1.28, 0.0, True),
        (1.5, -1.0, 1.5, 1.5, False),
        (0.7, 1.0, -0.7, -0.7, False),
        (0.7, -1.0, 0.8, 0.0, True),
        (1.1, 2.0, -2.2, -2.2, False),
    ],
)
def test_ppo_keeps_the_worse_of_plain_and_clipped(loss, ratio, advantage, value, slope, clipped) -> None:
    assert _one(ratio, advantage, loss("ppo")) == (pytest.approx(value), pytest.approx(slope), clipped)


def test_importance_sampling_never_clips(loss) -> None:
    assert _one(1.5, 1.0, loss()) == (pytest.approx(-1.5), pytest.approx(-1.5), False)


def test_zero_advantage_gives_no_gradient(loss) -> None:
    assert _one(1.5, 0.0, loss("ppo"))[1] == 0


def test_unknown_loss_names_the_known_ones(loss) -> None:
    with pytest.raises(UsageError, match="importance_sampling, ppo"):
        token_loss(torch.zeros(1), torch.zeros(1), torch.zeros(1), loss("dpo"))
