"""Losses compared with values computed by hand."""

from __future__ import annotations

import math

import pytest
import torch

from kernelrl_core.api.errors import UsageError
from kernelrl_plugin_torch.losses import token_loss


def _one(name: str, ratio: float, advantage: float) -> tuple[float, float, bool]:
    """Loss, its derivative by the log-probability, and True if the ratio was clipped; bounds 0.8 and 1.28."""
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
def test_ppo_uses_the_minimum_of_the_plain_and_the_clipped_objective(ratio, advantage, value, slope, clipped) -> None:
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


def test_an_unknown_loss_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="cispo, importance_sampling, ppo"):
        token_loss("dpo", torch.zeros(1), torch.zeros(1), torch.zeros(1), (0.8, 1.2))


def test_the_ratio_of_a_reply_is_the_geometric_mean_of_its_tokens() -> None:
    """Reply 1 has the token ratios 2 and 0.5, so its ratio is exp((log 2 - log 2) / 2) = 1. Reply 2 has 1.5 and 1.5,
    so 1.5. With A = 1 and bounds 0.8 to 1.28, ppo clips both tokens of reply 2 and, with token ratios, also one token
    of reply 1."""
    logprobs = torch.tensor([math.log(x) for x in (2.0, 0.5, 1.5, 1.5)], requires_grad=True)
    ones, zeros = torch.ones(4), torch.zeros(4)
    by_reply = token_loss("ppo", logprobs, zeros, ones, (0.8, 1.28), [2, 2])
    assert by_reply.ratio.tolist() == pytest.approx([1.0, 1.0, 1.5, 1.5])
    assert by_reply.loss.tolist() == pytest.approx([-1.0, -1.0, -1.28, -1.28])
    assert by_reply.clipped.tolist() == [False, False, True, True]
    by_token = token_loss("ppo", logprobs, zeros, ones, (0.8, 1.28))
    assert by_token.clipped.tolist() == [True, False, True, True]
    # Each of n tokens has 1 / n of the reply's derivative, n times: -ratio * A for every token, and 0 where clipped.
    by_reply.loss.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([-1.0, -1.0, 0.0, 0.0])


def test_on_policy_both_ratios_give_equal_gradients() -> None:
    sampled = torch.tensor([-0.5, -1.0, -2.0])
    slopes = []
    for lengths in (None, [1, 2]):
        logprobs = sampled.clone().requires_grad_()
        token_loss(
            "ppo", logprobs, sampled, torch.tensor([1.0, -2.0, -2.0]), (0.8, 1.28), lengths
        ).loss.sum().backward()
        slopes.append(logprobs.grad.tolist())
    assert slopes[0] == pytest.approx([-1.0, 2.0, 2.0])
    assert slopes[1] == pytest.approx(slopes[0])


def test_tokens_keep_their_own_gradient_under_the_ratio_of_the_reply() -> None:
    """GSPO-token: the ratio is exp of the mean over the counted tokens, (log 1.5 + log 1.5) / 2. The derivative of a
    token's loss is -ratio * A with its own advantage."""
    logprobs = torch.tensor([math.log(x) for x in (1.5, 1.5, 0.01)], requires_grad=True)
    counted = torch.tensor([True, True, False])
    advantages = torch.tensor([1.0, 2.0, 0.0])
    tokens = token_loss("ppo", logprobs, torch.zeros(3), advantages, (0.5, 2.0), [3], counted=counted)
    assert tokens.ratio.tolist() == pytest.approx([1.5, 1.5, 1.5])
    tokens.loss.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([-1.5, -3.0, 0.0])


def test_dro_has_a_quadratic_penalty() -> None:
    """-(A log p - beta / 2 (log ratio)^2) at log p = -1, sampler -3, A = 2: -(-2 - 0.25 * 4) = 3; slope 2 beta - A."""
    logprobs = torch.tensor([-1.0], requires_grad=True)
    tokens = token_loss("dro", logprobs, torch.tensor([-3.0]), torch.tensor([2.0]), (0.8, 1.2), beta=0.5)
    tokens.loss.sum().backward()
    assert tokens.loss.item() == pytest.approx(3.0)
    assert logprobs.grad.item() == pytest.approx(-1.0)


def test_cross_entropy_weighs_several_targets_of_a_token() -> None:
    weights = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    logprobs = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    assert token_loss("cross_entropy", logprobs, weights * 0, weights, (0.8, 1.2)).loss.sum().item() == 4.5
