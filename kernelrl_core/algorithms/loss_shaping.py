"""From a training step to the advantages of single tokens: the part of learning that every policy shares.

Pure functions on lists. A policy asks for the log-probabilities a step needs, and computes the loss from what
comes back; two policies that are given the same numbers train on the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import attrs

from kernelrl_core.interfaces.kinds import TrainingSample, TrainingStep
from kernelrl_core.recipe.schema import MismatchSettings

__all__ = ["ShapedStep", "mean_gap", "mismatched", "parts", "shape_step"]

S = TypeVar("S")


@attrs.frozen
class ShapedStep:
    """What is learnt from in a step."""

    samples: tuple[TrainingSample, ...]
    """Those that were not rejected, in canonical order."""
    advantages: tuple[tuple[float, ...], ...]
    """[sample][token] advantage with the KL penalty, divided by the step's normaliser."""
    metrics: Mapping[str, float]
    """`rejected` (share of the samples) and `kl_reference`, where they apply."""


def shape_step(
    step: TrainingStep,
    *,
    present: Sequence[Sequence[float]] | None = None,
    reference: Sequence[Sequence[float]] | None = None,
) -> ShapedStep:
    """Reject samples whose probabilities the trainer does not recognise, and pay for staying near the reference.

    The penalty shapes the advantage: A_t = A + kl * (mean(d) - d_t) with d_t = log p_sampled - log p_reference and the
    mean over all tokens that are trained on. It moves probability between tokens and adds nothing on the whole.

    Args:
        step: the batch.
        present: [sample][token] log-probabilities under the trainer's weights before the step; needed for rejection.
        reference: [sample][token] log-probabilities under the reference; needed when `step.loss.kl` is above 0.
    """
    rule, kl = step.loss.mismatch, step.loss.kl
    kept = list(range(len(step.samples)))
    metrics: dict[str, float] = {}
    if rule is not None and present is not None:
        kept = [i for i in kept if not mismatched(step.samples[i].logprobs, present[i], rule)]
        metrics["rejected"] = 1 - len(kept) / max(len(step.samples), 1)
    samples = tuple(step.samples[i] for i in kept)
    if kl == 0 or reference is None:
        rows = tuple((sample.advantage / step.loss.normaliser,) * len(sample.tokens) for sample in samples)
        return ShapedStep(samples, rows, metrics)
    gaps = [
        [sampled - base for sampled, base in zip(step.samples[i].logprobs, reference[i], strict=True)] for i in kept
    ]
    n = sum(len(row) for row in gaps)
    mean = math.fsum(gap for row in gaps for gap in row) / max(n, 1)
    rows = tuple(
        tuple((sample.advantage + kl * (mean - gap)) / step.loss.normaliser for gap in row)
        for sample, row in zip(samples, gaps, strict=True)
    )
    return ShapedStep(samples, rows, metrics | {"kl_reference": mean})


def mismatched(sampled: Sequence[float], present: Sequence[float], rule: MismatchSettings) -> bool:
    """Whether sampler and trainer disagree too much about a reply.

    Source: Dr. Kernel (Liu et al. 2026): keep a sample while the geometric mean of its ratios p_train / p_sample lies
    within bounds, and no single ratio is below a floor.
    """
    if not sampled:
        return False
    gaps = [now - then for now, then in zip(present, sampled, strict=True)]
    mean = math.exp(math.fsum(gaps) / len(gaps))
    return not rule.sequence_low <= mean <= rule.sequence_high or min(gaps) < math.log(rule.token_min)


def mean_gap(sampled: Sequence[Sequence[float]], present: Sequence[Sequence[float]]) -> float:
    """Mean over all tokens of |log p_train - log p_sample|; 0 without tokens."""
    gaps = [
        abs(now - then)
        for row, before in zip(present, sampled, strict=True)
        for now, then in zip(row, before, strict=True)
    ]
    return math.fsum(gaps) / max(len(gaps), 1)


def parts(items: Sequence[S], n: int) -> list[Sequence[S]]:
    """At most `n` consecutive parts, none empty, whose sizes differ by 1 at most; larger ones first."""
    n = min(n, len(items))
    bounds = [-(-len(items) * index // n) for index in range(n + 1)] if n else []
    return [items[start:end] for start, end in pairwise(bounds)]
