"""From training samples to the advantages of single tokens: the part of learning that every policy shares.

Pure functions on lists. The core calls them between the log-probabilities that it gets from a policy and the update
that it gives to it, so every policy trains on the same numbers.

Source: rejection by mismatch is that of Dr. Kernel, arXiv 2602.05885.
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
    """The samples of a step as its loss sees them."""

    samples: tuple[LossSample, ...]
    """Those that were not rejected, in the order given."""
    metrics: Mapping[str, float]
    """`rejected` (share of the samples) and `kl_reference`, where they apply."""


def shape_samples(
    samples: Sequence[TrainingSample],
    denominator: float,
    *,
    mismatch: MismatchSettings | None = None,
    current: Sequence[Sequence[float]] | None = None,
    kl: float = 0.0,
    reference: Sequence[Sequence[float]] | None = None,
) -> ShapedSamples:
    """Reject samples whose log-probabilities disagree, and fold KL penalty and loss denominator into the advantages.

    The penalty shapes the advantage: A_t = A + kl * (mean(d) - d_t) with d_t = log p_sampled - log p_reference and the
    mean over all tokens that are trained on. It moves probability between tokens and adds nothing on the whole.

    Args:
        denominator: every advantage is divided by it.
        mismatch: rule of rejection; None rejects nothing.
        current: [sample][token] log-probabilities under the weights before the step; needed with `mismatch`.
        kl: weight of the penalty for leaving the reference policy.
        reference: [sample][token] log-probabilities under the reference policy; needed when `kl` is above 0.

    Raises:
        ValueError: log-probabilities that are needed are missing.
    """
    if (mismatch is not None and current is None) or (kl and reference is None):
        raise ValueError("mismatch needs the current log-probabilities, and kl those of the reference policy")
    kept = list(range(len(samples)))
    metrics: dict[str, float] = {}
    if mismatch is not None and current is not None:
        kept = [i for i in kept if not mismatched(samples[i].sampler_logprobs, current[i], mismatch)]
        metrics["rejected"] = 1 - len(kept) / max(len(samples), 1)
    if not kl or reference is None:
        rows = [(samples[i].advantage / denominator,) * len(samples[i].tokens) for i in kept]
    else:
        gaps = [
            [sampled - base for sampled, base in zip(samples[i].sampler_logprobs, reference[i], strict=True)]
            for i in kept
        ]
        n = sum(len(row) for row in gaps)
        mean = math.fsum(gap for row in gaps for gap in row) / max(n, 1)
        metrics["kl_reference"] = mean
        rows = [
            tuple((samples[i].advantage + kl * (mean - gap)) / denominator for gap in row)
            for i, row in zip(kept, gaps, strict=True)
        ]
    shaped = (_loss_sample(samples[i], row) for i, row in zip(kept, rows, strict=True))
    return ShapedSamples(tuple(shaped), metrics)


def mismatched(sampler: Sequence[float], trainer: Sequence[float], rule: MismatchSettings) -> bool:
    """Whether the log-probabilities of a reply under sampler and trainer differ too much.

    Source: Dr. Kernel (Liu et al. 2026): keep a sample while the geometric mean of its ratios p_train / p_sample lies
    within bounds, and no single ratio is below a floor.
    """
    if not sampler:
        return False
    gaps = [now - then for now, then in zip(trainer, sampler, strict=True)]
    mean = math.exp(math.fsum(gaps) / len(gaps))
    return not rule.sequence_low <= mean <= rule.sequence_high or min(gaps) < math.log(rule.token_min)


def split_evenly(items: Sequence[S], n: int) -> list[Sequence[S]]:
    """At most `n` consecutive parts, none empty, whose sizes differ by 1 at most; larger ones first."""
    n = min(n, len(items))
    bounds = [-(-len(items) * index // n) for index in range(n + 1)] if n else []
    return [items[start:end] for start, end in pairwise(bounds)]


def _loss_sample(sample: TrainingSample, advantages: Sequence[float]) -> LossSample:
    return LossSample(sample.id, sample.prompt_tokens, sample.tokens, sample.sampler_logprobs, advantages)
