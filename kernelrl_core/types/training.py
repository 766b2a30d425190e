"""Arguments of a policy's methods for sampling and training."""

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
    """Maximum number of tokens of the reply."""
    temperature: float
    """Sampling temperature; 0: the most probable token."""
    top_p: float
    """Nucleus sampling: cumulative probability of the tokens that are sampled from; 1: all tokens."""
    top_k: int
    """Number of most probable tokens that are sampled from; -1: all tokens."""
    stop: tuple[str, ...]
    """Strings that end a reply, besides the model's end-of-turn token."""
    seed: int
    """Own seed of this reply, from 0 to 2**63 - 1."""
    logprobs_temperature: float = 1.0
    """Temperature of the log-probabilities of the reply; other than 1 only with the capability `tempered`."""


@attrs.frozen
class MismatchSettings:
    """Reject training samples whose trainer and sampler log-probabilities disagree."""

    sequence_low: PositiveFloat = PositiveFloat(0.999)
    """Filter a reply whose ratios p_train / p_sample have a geometric mean below this value."""
    sequence_high: PositiveFloat = PositiveFloat(1.001)
    """Filter a reply whose ratios have a geometric mean above this value."""
    token_min: PositiveFloat = PositiveFloat(1e-4)
    """Filter a reply with a token whose ratio is below this value."""


@attrs.frozen
class TrainingSample:
    """One turn in its role as training data."""

    id: str
    """Sample id `step.task.episode.turn`."""
    prompt_tokens: tuple[int, ...]
    """Token ids of the prompt."""
    tokens: tuple[int, ...]
    """[n] sampled token ids."""
    sampler_logprobs: tuple[float, ...]
    """[n] log-probabilities of the tokens under the policy that sampled them."""
    advantage: float
    """Advantage of the turn."""
    temperature: float = 1.0
    """Temperature of `sampler_logprobs`, and of the log-probabilities to compute."""


@attrs.frozen
class LossSample:
    """A training sample for the loss. Its advantages already include the KL penalty and the loss denominator."""

    id: str
    """Sample id `step.task.episode.turn`."""
    prompt_tokens: tuple[int, ...]
    """Token ids of the prompt."""
    tokens: tuple[int, ...]
    """[n] sampled token ids."""
    sampler_logprobs: Sequence[float]
    """[n] log-probabilities of the tokens under the policy that sampled them."""
    advantages: Sequence[float]
    """[n] advantage of each token. The loss of an optimizer step is the plain sum over its tokens."""
    temperature: float = 1.0
    """Temperature of the log-probabilities in the loss: the logits are divided by it."""


@attrs.frozen
class Loss:
    """Policy-gradient loss of a step."""

    name: str
    """`importance_sampling`, `ppo` or `cispo`, or another that the policy lists."""
    clip_low: float
    """PPO and CISPO clip the ratio at 1 - clip_low from below."""
    clip_high: float
    """PPO and CISPO clip the ratio at 1 + clip_high from above."""
    ratio: Literal["token", "sequence"] = "token"
    """Ratio p_train / p_sample that the loss weights and clips by: `token`: that of each token; `sequence`: for all
    tokens of a reply the geometric mean, exp(mean(log p_train - log p_sample)) (GSPO, arXiv 2507.18071)."""


@attrs.frozen
class OptimizerSettings:
    """Settings of AdamW and of gradient clipping."""

    learning_rate: float
    """Learning rate of this step, after warm-up."""
    beta1: float
    """AdamW decay of the first moment."""
    beta2: float
    """AdamW decay of the second moment."""
    eps: float
    """AdamW epsilon."""
    weight_decay: float
    """AdamW decoupled weight decay."""
    max_grad_norm: float | None
    """Maximum global norm of the gradient; None: no clipping."""


@attrs.frozen
class Update:
    """One training step. A policy applies all of it or none."""

    step: int
    """Number of the step, from 0."""
    substeps: tuple[tuple[LossSample, ...], ...]
    """All samples of the step in canonical order (task, episode, turn), divided into optimizer steps. No substep is
    empty."""
    accumulated: tuple[int, ...]
    """Numbers of samples in the earlier calls of `backward`, in order. These are the first samples of the first
    substep. A policy that lost their gradients recomputes them."""
    loss: Loss
    """Loss and its clipping."""
    optimizer: OptimizerSettings
    """Settings of the optimizer."""
