"""Losses on numbers worked by hand."""

from __future__ import annotations

import math

import pytest
import torch

from kernelrl_core.errors import UsageError
from kernelrl_plugin_torch.losses import token_loss


def _one(name: str, ratio: float, advantage: float) -> tuple[float, float, bool]:
    """Loss, derivative by the log-probability, and whether the ratio was clipped; bounds 0.8 and 1.28."""
    logprobs = torch.tensor([math.log(ratio)], requires_grad=True)
    tokens = token_loss(name, logprobs, torch.zeros(1), torch.tensor([advantage]), (0.8, 1.28))
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
def test_ppo_keeps_the_worse_of_plain_and_clipped(ratio, advantage, value, slope, clipped) -> None:
    assert _one("ppo", ratio, advantage) == (pytest.approx(value), pytest.approx(slope), clipped)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope", "clipped"),
    [
        # -clip(ratio, 0.8, 1.28) * A is the whole derivative: the ratio is a weight without gradient.
        (1.5, 1.0, -1.28, True),
        (1.5, -1.0, 1.28, True),
        (0.7, 1.0, -0.8, True),
        (1.1, 2.0, -2.2, False),
    ],
)
def test_cispo_keeps_the_gradient_of_clipped_tokens(ratio, advantage, slope, clipped) -> None:
    value = slope * math.log(ratio)
    assert _one("cispo", ratio, advantage) == (pytest.approx(value), pytest.approx(slope), clipped)


def test_cross_entropy_weighs_the_log_probability() -> None:
    assert _one("cross_entropy", 0.5, 3.0) == (pytest.approx(-3 * math.log(0.5)), pytest.approx(-3.0), False)


def test_importance_sampling_never_clips() -> None:
    assert _one("importance_sampling", 1.5, 1.0) == (pytest.approx(-1.5), pytest.approx(-1.5), False)


def test_zero_advantage_gives_no_gradient() -> None:
    assert _one("ppo", 1.5, 0.0)[1] == 0


def test_unknown_loss_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="cispo, importance_sampling, ppo"):
        token_loss("dpo", torch.zeros(1), torch.zeros(1), torch.zeros(1), (0.8, 1.2))
