"""Per-token advantages of training samples: mismatch rejection, KL penalty, importance weights, loss denominator.

Pure functions on lists. The core calls them before it passes an update to the policy, so every policy plugin trains on
the same advantages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import attrs

from kernelrl_core.types.training import LossSample, MismatchSettings, TrainingSample

__all__ = ["ShapedSamples", "mismatched", "shape_samples", "split_evenly"]

S = TypeVar("S")


@attrs.frozen
class ShapedSamples:
    """The samples of a step in the form that the loss takes."""

    samples: tuple[LossSample, ...]
    """The samples that were not rejected, in the given order."""
    metrics: Mapping[str, float]
    """`rejected`: rejected fraction of the samples, with `mismatch`. `kl_reference`: mean of d in nats per token, with
    `kl`. With `importance_cap`, `importance_weight_mean` and `importance_truncated`: mean weight of the tokens, and
    fraction of the tokens whose weight is the cap; `mismatch`: mean over tokens of |log p_current - log p_sampler|."""


def shape_samples(
    samples: Sequence[TrainingSample],
    denominator: float,
    *,
    per_sample: bool = False,
    mismatch: MismatchSettings | None = None,
    current: Sequence[Sequence[float]] | None = None,
    kl: float = 0.0,
    reference: Sequence[Sequence[float]] | None = None,
    importance_cap: float | None = None,
) -> ShapedSamples:
    """Reject mismatched samples; compute one advantage per token, with KL penalty, divided by the loss denominator.

    Token t of a sample with advantage A gets (A + kl * (mean(d) - d_t)) / denominator, where d_t = log p_sampler(t) -
    log p_reference(t) and the mean is over all tokens of all samples that were not rejected. The penalty terms of all
    tokens sum to 0. With `per_sample`, it is also divided by the number of tokens of the sample.

    With `importance_cap` C, this is multiplied by min(r_t, C), where r_t = p_current(t) / p_sampler(t), and the sampler
    log-probabilities are replaced by the current ones, so that the ratio of the loss is to p_current.

    Source: rejection: Dr. Kernel, arXiv 2602.05885; truncated importance sampling: F. Yao et al., "Your Efficient RL
    Framework Secretly Brings You Off-Policy RL Training", 2025, as `tis_imp_ratio_cap` of verl; KL penalty:
    `incorporate_kl_penalty` of tinker-cookbook 0.5.8.

    Args:
        samples: training samples of a step.
        denominator: see `loss_denominator`.
        per_sample: the loss of a sample is the mean over its tokens, not their sum.
        mismatch: bounds of the rejection; None: no sample is rejected.
        current: [sample][token] log-probabilities under the weights before the step; required with `mismatch` and
            `importance_cap`.
        kl: weight of the KL penalty; 0: no penalty.
        reference: [sample][token] log-probabilities under the reference policy; required if `kl` is not 0.
        importance_cap: C; None: no importance weights.

    Raises:
        ValueError: `current` or `reference` is missing or does not match the tokens of a sample.
    """
    needs_current = mismatch is not None or importance_cap is not None
    if (needs_current and current is None) or (kl and reference is None):
        raise ValueError("`mismatch` and `importance_cap` require `current`, and `kl` requires `reference`")
    kept = list(range(len(samples)))
    metrics: dict[str, float] = {}
    if mismatch is not None and current is not None:
        kept = [i for i in kept if not mismatched(samples[i].sampler_logprobs, current[i], mismatch)]
        metrics["rejected"] = 1 - len(kept) / max(len(samples), 1)
    divisors = [len(samples[i].tokens) or 1 if per_sample else 1 for i in kept]
    if not kl or reference is None:
        rows = [
            (samples[i].advantage / (denominator * n),) * len(samples[i].tokens)
            for i, n in zip(kept, divisors, strict=True)
        ]
    else:
        log_ratios = [
            [sampler - base for sampler, base in zip(samples[i].sampler_logprobs, reference[i], strict=True)]
            for i in kept
        ]
        tokens = sum(len(row) for row in log_ratios)
        mean = math.fsum(d for row in log_ratios for d in row) / max(tokens, 1)
        metrics["kl_reference"] = mean
        rows = [
            tuple((samples[i].advantage + kl * (mean - d)) / (denominator * n) for d in row)
            for i, n, row in zip(kept, divisors, log_ratios, strict=True)
        ]
    shaped = tuple(_loss_sample(samples[i], row) for i, row in zip(kept, rows, strict=True))
    if importance_cap is not None and current is not None:
        shaped, found = _importance_weighted(shaped, [current[i] for i in kept], importance_cap)
        metrics |= found
    return ShapedSamples(shaped, metrics)


def _importance_weighted(
    samples: Sequence[LossSample], current: Sequence[Sequence[float]], cap: float
) -> tuple[tuple[LossSample, ...], dict[str, float]]:
    """The samples with truncated importance weights in their advantages, and metrics of the weights."""
    weighted = []
    weights: list[float] = []
    gaps: list[float] = []
    n_truncated = 0
    for sample, logprobs in zip(samples, current, strict=True):
        log_ratios = [new - old for new, old in zip(logprobs, sample.sampler_logprobs, strict=True)]
        # The minimum is taken of logarithms, because the exponential of a large one overflows.
        truncated = [math.exp(min(log_ratio, math.log(cap))) for log_ratio in log_ratios]
        advantages = tuple(a * weight for a, weight in zip(sample.advantages, truncated, strict=True))
        weighted.append(attrs.evolve(sample, sampler_logprobs=tuple(logprobs), advantages=advantages))
        weights += truncated
        gaps += map(abs, log_ratios)
        n_truncated += sum(log_ratio > math.log(cap) for log_ratio in log_ratios)
    n_tokens = max(len(weights), 1)
    metrics = {
        "importance_weight_mean": math.fsum(weights) / n_tokens,
        "importance_truncated": n_truncated / n_tokens,
        # The policy would compare the trainer with itself.
        "mismatch": math.fsum(gaps) / n_tokens,
    }
    return tuple(weighted), metrics


def mismatched(sampler: Sequence[float], trainer: Sequence[float], rule: MismatchSettings) -> bool:
    """Whether a reply is rejected because its trainer and sampler log-probabilities differ too much.

    With the ratios r_t = p_trainer(t) / p_sampler(t), a reply is rejected if their geometric mean is outside
    [sequence_low, sequence_high] or if any r_t is below token_min. An empty reply is never rejected.

    Source: Dr. Kernel, arXiv 2602.05885, mismatch rejection sampling.

    Args:
        sampler: [token] sampler log-probabilities.
        trainer: [token] trainer log-probabilities.

    Raises:
        ValueError: the lengths differ.
    """
    if not sampler:
        return False
    log_ratios = [new - old for new, old in zip(trainer, sampler, strict=True)]
    mean = math.exp(math.fsum(log_ratios) / len(log_ratios))
    return not rule.sequence_low <= mean <= rule.sequence_high or min(log_ratios) < math.log(rule.token_min)


def split_evenly(items: Sequence[S], n: int) -> list[Sequence[S]]:
    """Split into min(n, len(items)) consecutive, non-empty parts whose sizes differ by at most 1. No part is larger
    than the first."""
    n = min(n, len(items))
    bounds = [-(-len(items) * index // n) for index in range(n + 1)] if n else []
    return [items[start:end] for start, end in pairwise(bounds)]


def _loss_sample(sample: TrainingSample, advantages: Sequence[float]) -> LossSample:
    return LossSample(
        sample.id, sample.prompt_tokens, sample.tokens, sample.sampler_logprobs, advantages, sample.temperature
    )
