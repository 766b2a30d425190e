"""Losses from the recipe to the gradient, compared with the formulas of the papers, written again from the papers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelrl_core.api.episodes import SampleId
from kernelrl_core.api.policies import Update
from kernelrl_plugin_torch.losses import token_loss
from kernelrl_testing.core import CostMeter, Credit, Learner, PriceSettings, SamplingOptions, Timeline, TrainSettings
from kernelrl_testing.fakes import FakePolicy
from kernelrl_testing.training import make_recipe
from kernelrl_testing.values import make_reply, make_turn

LOW, HIGH = 0.8, 1.28
LIMIT = 12
"""Token limit of a reply."""


def update_of(train: dict[str, Any], replies: Sequence[tuple[Sequence[float], float]]) -> Update:
    """The update that the core makes of replies, each with its sampler log-probabilities and its advantage."""
    settings = TrainSettings(**({"clip_low": 1 - LOW, "clip_high": HIGH - 1, "loss": "ppo"} | train))
    policy = FakePolicy()
    recipe = make_recipe(train=settings, sampling=SamplingOptions(max_tokens=LIMIT))
    credits_ = [
        Credit(
            make_turn(id=SampleId(0, 0, i, 0), reply=make_reply("", (1,) * len(row), logprobs=tuple(row))),
            return_=advantage,
            advantage=advantage,
        )
        for i, (row, advantage) in enumerate(replies)
    ]

    async def work() -> None:
        step = Learner(recipe, policy, CostMeter(PriceSettings()), Timeline()).begin(0, 1, len(credits_))
        await step.add(credits_)
        await step.finish()

    asyncio.run(work())
    return policy.updates[0]


def loss_of(update: Update, rows: Sequence[Tensor], name: str) -> Tensor:
    """The loss of policy `torch` for an update, with trainer log-probabilities [reply][token]."""
    samples = [sample for substep in update.substeps for sample in substep]
    sampled = torch.tensor([x for sample in samples for x in sample.sampler_logprobs], dtype=torch.float64)
    advantages = torch.tensor([x for sample in samples for x in sample.advantages], dtype=torch.float64)
    lengths = [len(row) for row in rows] if update.loss.ratio == "sequence" else None
    return token_loss(name, torch.cat(list(rows)), sampled, advantages, (LOW, HIGH), lengths).loss.sum()


# --- worked by hand -------------------------------------------------------------------------------------------------


def test_gspo_counts_every_reply_once() -> None:
    """Two replies of 1 and 2 tokens, A = 1 and -1, sampler log-probabilities 0.

    Ratios of the tokens: 1.1 | 0.9, 0.9, so s = 1.1 | 0.9, inside 0.8 to 1.28.
    GSPO: -(1.1 * 1 + 0.9 * -1) / 2 = -0.1. Its derivatives by log p_t are -s A / (|y| n): -0.55 | 0.225, 0.225.
    The sum over tokens, over 3 tokens: -(1.1 - 2 * 0.9) / 3 = 0.2333.
    """
    replies = [([0.0], 1.0), ([0.0, 0.0], -1.0)]

    def rows() -> list[Tensor]:
        return [
            torch.tensor([math.log(x) for x in ratios], dtype=torch.float64, requires_grad=True)
            for ratios in ([1.1], [0.9, 0.9])
        ]

    trained = rows()
    loss = loss_of(update_of({"ratio": "sequence"}, replies), trained, "ppo")
    loss.backward()
    assert loss.item() == pytest.approx(-0.1)
    assert [slope for row in trained for slope in row.grad.tolist()] == pytest.approx([-0.55, 0.225, 0.225])
    assert loss_of(update_of({"ratio": "sequence_sum"}, replies), rows(), "ppo").item() == pytest.approx(0.7 / 3)


def test_grpo_averages_over_the_tokens_of_a_reply_first() -> None:
    """Ratios 1.1 | 0.9, 0.7 and A = 1 | -1: -(1.1 + (-0.9 + min(-0.7, -0.8)) / 2) / 2 = -(1.1 - 0.85) / 2 = -0.125."""
    replies = [([0.0], 1.0), ([0.0, 0.0], -1.0)]
    rows = [torch.tensor([math.log(x) for x in ratios], dtype=torch.float64) for ratios in ([1.1], [0.9, 0.7])]
    assert loss_of(update_of({"length_norm": "per_sample"}, replies), rows, "ppo").item() == pytest.approx(-0.125)


# --- written again from the papers ----------------------------------------------------------------------------------


def clipped(ratio: Tensor, advantage: float) -> Tensor:
    return torch.min(ratio * advantage, ratio.clamp(LOW, HIGH) * advantage)


def tokens_of(trained: Tensor, sampled: Tensor, advantage: float) -> list[Tensor]:
    return [clipped((new - old).exp(), advantage) for new, old in zip(trained, sampled, strict=True)]


def grpo(replies: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """DeepSeekMath, without the KL term: 1/G sum_i 1/|o_i| sum_t."""
    return -torch.stack([torch.stack(tokens_of(*reply)).mean() for reply in replies]).mean()


def dapo(replies: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """DAPO: one mean over all tokens."""
    return -torch.stack([term for reply in replies for term in tokens_of(*reply)]).mean()


def dr_grpo(replies: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Dr. GRPO: the sum over the tokens of a reply, divided by a constant, here the token limit; mean over replies."""
    return -torch.stack([sum(tokens_of(*reply)) / LIMIT for reply in replies]).mean()


def gspo(replies: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """GSPO: s_i = (p_train(y_i) / p_sampled(y_i)) ** (1 / |y_i|), one clipped term per reply."""
    ratios = [(new.sum().exp() / old.sum().exp()) ** (1 / len(new)) for new, old, _ in replies]
    return -torch.stack([clipped(s, a) for s, (_, _, a) in zip(ratios, replies, strict=True)]).mean()


def cispo(replies: Sequence[tuple[Tensor, Tensor, float]]) -> Tensor:
    """MiniMax-M1, with a lower bound of the ratio: one mean over all tokens."""
    terms = [
        (new - old).exp().clamp(LOW, HIGH).detach() * advantage * new
        for trained, sampled, advantage in replies
        for new, old in zip(trained, sampled, strict=True)
    ]
    return -torch.stack(terms).mean()


@pytest.mark.parametrize(
    ("paper", "train"),
    [
        (grpo, {"length_norm": "per_sample"}),
        (dapo, {"length_norm": "tokens"}),
        (dr_grpo, {"length_norm": "max_tokens"}),
        (dr_grpo, {"length_norm": LIMIT}),
        (gspo, {"ratio": "sequence"}),
        (gspo, {"ratio": "sequence", "length_norm": "per_sample"}),
        (cispo, {"loss": "cispo"}),
    ],
)
def test_loss_and_gradient_are_those_of_the_paper(paper: Callable[..., Tensor], train: dict[str, Any]) -> None:
    """The model is a table of 9 logits for each of 9 tokens; replies have 1 to 12 tokens, some ratios are clipped."""
    draw = torch.Generator().manual_seed(3)
    texts = [torch.randint(9, (length + 1,), generator=draw) for length in (1, 12, 5, 2)]
    advantages = [1.3, -0.7, 0.4, -1.9]
    table = torch.randn(9, 9, dtype=torch.float64, generator=draw)
    noise = [0.3 * torch.randn(len(text) - 1, dtype=torch.float64, generator=draw) for text in texts]

    def logprobs(weights: Tensor) -> list[Tensor]:
        return [weights.log_softmax(-1)[text[:-1], text[1:]] for text in texts]

    sampled = [row + more for row, more in zip(logprobs(table), noise, strict=True)]
    theirs, ours = table.clone().requires_grad_(), table.clone().requires_grad_()
    expected = paper(list(zip(logprobs(theirs), sampled, advantages, strict=True)))
    expected.backward()
    update = update_of(train, [(row.tolist(), a) for row, a in zip(sampled, advantages, strict=True)])
    loss = loss_of(update, logprobs(ours), update.loss.name)
    loss.backward()
    assert theirs.grad.abs().max() > 1e-3
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    assert torch.allclose(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)
