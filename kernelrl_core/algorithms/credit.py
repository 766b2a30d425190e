"""Credit of every sample of a step: return, advantage, and whether it is trained on.

The batch is fixed here, in this order: mask samples lost to infrastructure errors, returns, advantages, fix the divisor
of the loss, exclude groups whose advantages are all equal, exclude lazy kernels where the recipe says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kernelrl_core.algorithms.advantages import discounted_returns
from kernelrl_core.interfaces.advantages import AdvantageFunction
from kernelrl_core.recipe.schema import CoverageRejection, Recipe, ReturnSettings, TrainSettings
from kernelrl_core.types import Episode, Group, Turn
from kernelrl_core.types.seeds import derived_seed
from kernelrl_core.types.training import TrainingSample

__all__ = [
    "Credit",
    "assign_credit",
    "coverage_keep_probability",
    "loss_denominator",
    "planned_samples",
    "training_samples",
]


@attrs.frozen
class Credit:
    """What one sample earned."""

    turn: Turn
    return_: float | None = None
    """Return; None when the sample is masked."""
    advantage: float | None = None
    """None when the sample is masked."""
    exclusion_reason: str = ""
    """Why it is not trained on: `infra_error` (it was lost), `incomplete` (a later turn of its attempt was lost, so its
    return is not known), `small_group` (too few attempts are left), `uniform` (all advantages of its group are 0),
    `low_coverage` (correct, but its time is mostly spent in kernels that are not its own). Empty: it is trained on."""

    @property
    def masked(self) -> bool:
        return self.advantage is None

    def row(self) -> dict[str, Any]:
        """Row of `credits.jsonl`."""
        return {
            "sample": str(self.turn.id),
            "step": self.turn.id.step,
            "reward": None if self.turn.masked else self.turn.score.total,
            "return": self.return_,
            "advantage": self.advantage,
            "masked": self.masked,
            "filtered": bool(self.exclusion_reason) and not self.masked,
            "reason": self.exclusion_reason,
        }


def assign_credit(
    groups: Sequence[Group], estimator: AdvantageFunction, returns: ReturnSettings, train: TrainSettings, seed: int
) -> list[Credit]:
    """Credits in canonical order: (task, attempt, turn).

    Args:
        seed: of the run, for what is left out by chance.
    """
    batch = [credit for group in groups for credit in _credit_group(group, estimator, returns, train)]
    if train.coverage_rejection is not None:
        batch = [_without_lazy(credit, train.coverage_rejection, seed) for credit in batch]
    return sorted(batch, key=lambda credit: credit.turn.id)


def planned_samples(recipe: Recipe, n_tasks: int) -> int | None:
    """Samples of a step before anything of it is known; None where attempts may end early."""
    if recipe.episode.stop != "never":
        return None
    return n_tasks * recipe.train.group_size * recipe.episode.turns


def loss_denominator(batch: Sequence[Credit], train: TrainSettings, max_tokens: int, planned: int | None) -> float:
    """Denominator of the token loss that an optimizer step sums, over 1/`substeps` of the samples.

    It counts filtered samples too, so it does not depend on the filter.

    Args:
        planned: samples of the step as planned, which is then the number of samples, lost ones included; None counts
            those that were not lost.
    """
    turns = [credit.turn for credit in batch if not credit.masked]
    n = len(turns) if planned is None else planned
    if train.length_norm == "tokens":
        divisor = sum(len(turn.reply.tokens) for turn in turns)
    elif train.length_norm == "max_tokens":
        divisor = n * max_tokens
    elif train.length_norm == "none":
        divisor = n
    else:
        divisor = n * train.length_norm
    return max(divisor, 1) / train.substeps


def training_samples(batch: Sequence[Credit]) -> tuple[TrainingSample, ...]:
    """What the policy learns from, in canonical order."""
    return tuple(
        TrainingSample(
            id=str(credit.turn.id),
            prompt_tokens=credit.turn.prompt.tokens,
            tokens=credit.turn.reply.tokens,
            sampler_logprobs=credit.turn.reply.logprobs,
            advantage=credit.advantage,
        )
        for credit in batch
        if credit.advantage is not None and not credit.exclusion_reason
    )


def coverage_keep_probability(share: float, settings: CoverageRejection) -> float:
    """clip((share - threshold) / ramp, 0, 1); without a ramp all above the threshold is kept.

    Args:
        share: of the device's time in the candidate's own kernels.

    Source: Dr. Kernel (arXiv 2602.05885), profiling-based rejection sampling, with threshold 0.3 and ramp 0.1.
    """
    above = share - settings.threshold
    return min(max(above / settings.ramp, 0.0), 1.0) if settings.ramp > 0 else float(above > 0)


def _without_lazy(credit: Credit, settings: CoverageRejection, seed: int) -> Credit:
    # Wrong kernels stay, as in the paper's code: what is not fast says nothing about what is not right.
    evaluation = credit.turn.evaluation
    if credit.exclusion_reason or not credit.turn.correct or evaluation is None or evaluation.own_kernel_share is None:
        return credit
    keep = coverage_keep_probability(evaluation.own_kernel_share, settings)
    drawn = derived_seed(seed, "coverage", str(credit.turn.id)) / 2**63
    return credit if drawn < keep else attrs.evolve(credit, exclusion_reason="low_coverage")


def _credit_group(
    group: Group, estimator: AdvantageFunction, returns: ReturnSettings, train: TrainSettings
) -> list[Credit]:
    reasons = [_exclusion_reasons(episode, returns.gamma) for episode in group.episodes]
    valid = [
        [turn for turn, why in zip(e.turns, r, strict=True) if not why]
        for e, r in zip(group.episodes, reasons, strict=True)
    ]
    attempts = [turns for turns in valid if turns]
    credited = [
        Credit(turn, exclusion_reason=why)
        for episode, row in zip(group.episodes, reasons, strict=True)
        for turn, why in zip(episode.turns, row, strict=True)
        if why
    ]
    if len(attempts) < train.min_group_size:
        return credited + [Credit(turn, exclusion_reason="small_group") for turns in attempts for turn in turns]
    values = [
        discounted_returns([t.score.total for t in turns], returns.gamma, returns.aggregate) for turns in attempts
    ]
    advantages = estimator(values)
    uniform = train.drop_uniform_groups and not any(a for row in advantages for a in row)
    for turns, row, earned in zip(attempts, values, advantages, strict=True):
        for turn, value, advantage in zip(turns, row, earned, strict=True):
            credited.append(Credit(turn, value, advantage, "uniform" if uniform else ""))
    return credited


def _exclusion_reasons(episode: Episode, gamma: float) -> list[str]:
    """[turn] why it is masked. A lost turn hides what the earlier ones led to, unless they are not paid for that."""
    lost = any(turn.masked for turn in episode.turns)
    return ["infra_error" if turn.masked else "incomplete" if lost and gamma > 0 else "" for turn in episode.turns]
