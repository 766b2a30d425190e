"""What a policy is given to sample and to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from kernelrl_core.types.numbers import PositiveFloat

__all__ = [
    "Loss",
    "LossSample",
    "MismatchSettings",
    "OptimizerSettings",
    "SamplingSettings",
    "TrainingSample",
    "Update",
]


@attrs.frozen
class SamplingSettings:
    """How one reply is sampled."""

    max_tokens: int
    temperature: float
    """0 takes the most probable token."""
    top_p: float
    top_k: int
    """-1 keeps every token."""
    stop: tuple[str, ...]
    """Strings that end a reply, beside the model's own end of turn."""
    seed: int
    """Own seed of this reply, from 0 to 2**63 - 1."""


@attrs.frozen
class MismatchSettings:
    """Reject training samples whose trainer and sampler log-probabilities disagree."""

    sequence_low: PositiveFloat = PositiveFloat(0.999)
    """Least geometric mean of a reply's ratios p_train / p_sample …"""
    sequence_high: PositiveFloat = PositiveFloat(1.001)
    """… and its greatest."""
    token_min: PositiveFloat = PositiveFloat(1e-4)
    """A single token below this ratio rejects the reply."""


@attrs.frozen
class TrainingSample:
    """A turn as training data."""

    id: str
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    """[n] sampled token ids."""
    sampler_logprobs: tuple[float, ...]
    """[n] log-probabilities of the tokens under the policy that sampled them."""
    advantage: float


@attrs.frozen
class LossSample:
    """A training sample as the loss sees it: KL penalty and loss denominator are folded into the advantages."""

    id: str
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    """[n] sampled token ids."""
    sampler_logprobs: Sequence[float]
    """[n] log-probabilities of the tokens under the policy that sampled them."""
    advantages: Sequence[float]
    """[n] advantage of each token. The loss of an optimizer step is the plain sum over its tokens."""


@attrs.frozen
class Loss:
    """Policy-gradient loss of a step."""

    name: str
    """`importance_sampling`, `ppo` or `cispo`, or another that the policy lists."""
    clip_low: float
    """PPO and CISPO keep the ratio above 1 - clip_low …"""
    clip_high: float
    """… and below 1 + clip_high."""
    ratio: Literal["token", "sequence"] = "token"
    """What the loss weights and clips by: the ratio of each token, or for all tokens of a reply the geometric mean of
    theirs, exp(mean(log p_train - log p_sample)) (GSPO, arXiv 2507.18071)."""


@attrs.frozen
class OptimizerSettings:
    """AdamW and its surroundings."""

    learning_rate: float
    """Of this step, after warm-up."""
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    max_grad_norm: float | None
    """Clip the gradient's global norm; None: never."""


@attrs.frozen
class Update:
    """One step of training, whole: a policy applies all of it or none."""

    step: int
    substeps: tuple[tuple[LossSample, ...], ...]
    """All samples of the step in canonical order of (task, episode, turn), divided into its optimizer steps. None is
    empty."""
    accumulated: tuple[int, ...]
    """Sizes of the parts that were given to `backward` before, in order: the first samples of the first substep. A
    policy that has lost their gradients computes them again."""
    loss: Loss
    optimizer: OptimizerSettings
