"""Credit of every training sample of a step: return, advantage, exclusion reason.

Order: mask turns lost to infrastructure errors and groups that are too small; compute returns, then advantages; filter
groups whose advantages are all 0; filter correct kernels of low coverage (`train.coverage_rejection`). The loss
denominator counts filtered samples and ignores masked ones.
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
    """Return, advantage and exclusion reason of one training sample."""

    turn: Turn
    return_: float | None = None
    """Return; None if the sample is masked."""
    advantage: float | None = None
    """None if the sample is masked."""
    exclusion_reason: str = ""
    """Empty: the sample is trained on. Masked: `infra_error`, `incomplete` (a later turn of the episode was lost to an
    infrastructure error, so the return is unknown), `small_group` (fewer than `train.min_group_size` valid episodes).
    Filtered: `uniform` (all advantages of the group are 0), `low_coverage` (a correct kernel with a small share of
    device time in own kernels)."""

    @property
    def masked(self) -> bool:
        return self.advantage is None

    def row(self) -> dict[str, Any]:
        """Row of `credits.jsonl`."""
        row = {
            "sample": str(self.turn.id),
            "step": self.turn.id.step,
            "reward": None if self.turn.masked else self.turn.score.total,
            "return": self.return_,
            "advantage": self.advantage,
            "speedup": self.turn.speedup,
            "masked": self.masked,
            "filtered": bool(self.exclusion_reason) and not self.masked,
            "reason": self.exclusion_reason,
        }
        shown = [example.id for example in self.turn.examples if example.id]
        return row | ({"examples": shown, "task_id": self.turn.task.id} if shown else {})


def assign_credit(
    groups: Sequence[Group], estimator: AdvantageFunction, returns: ReturnSettings, train: TrainSettings, seed: int
) -> list[Credit]:
    """One credit per turn, in canonical order: (task, episode, turn).

    Args:
        groups: groups of one step, or part of them; credits of a group do not depend on other groups.
        estimator: advantage function of the recipe.
        seed: seed of the run, for the random filter `train.coverage_rejection`.

    Raises:
        KernelRLError: the advantage plugin failed.
    """
    batch = [credit for group in groups for credit in _credit_group(group, estimator, returns, train)]
    if train.coverage_rejection is not None:
        batch = [_filter_low_coverage(credit, train.coverage_rejection, seed) for credit in batch]
    return sorted(batch, key=lambda credit: credit.turn.id)


def planned_samples(recipe: Recipe, n_tasks: int) -> int | None:
    """Number of training samples of a step, known before the rollout; None where episodes may stop early, or uniform
    groups are replaced."""
    if recipe.episode.stop != "never" or recipe.train.refill:
        return None
    return n_tasks * recipe.train.group_size * recipe.episode.turns


def loss_denominator(batch: Sequence[Credit], train: TrainSettings, max_tokens: int, planned: int | None) -> float:
    """Loss denominator of one optimizer step: the denominator of the whole step divided by `train.substeps`.

    With n samples in the step, `train.length_norm` selects: `tokens`: sum of the reply lengths, but n with
    `train.ratio: sequence`; `per_sample`: n; `max_tokens`: n times `max_tokens`; a number L: n times L; `none`: n. The
    result is at least 1 / `train.substeps`. Filtered samples count, so filtering changes no other sample's weight; with
    `train.refill`, uniform groups do not count, because other groups took their places.

    Source: `max_tokens` is the constant of Dr. GRPO, arXiv 2503.20783; `tokens` is the token mean of DAPO,
    arXiv 2503.14476; `per_sample`, with `per_sample` of `shape_samples`, is the mean of GRPO, arXiv 2402.03300, and of
    GSPO, arXiv 2507.18071.

    Args:
        batch: credits of the step.
        max_tokens: limit of a reply in this step, in tokens.
        planned: n, including masked samples; None: n is the number of samples that are not masked. `tokens` always sums
            over the samples that are not masked.
    """
    is_replaced = {"uniform"} if train.refill else set()
    turns = [credit.turn for credit in batch if not credit.masked and credit.exclusion_reason not in is_replaced]
    n = len(turns) if planned is None else planned
    if train.length_norm == "tokens" and train.ratio != "sequence":
        total = sum(len(turn.reply.tokens) for turn in turns)
    elif train.length_norm == "max_tokens":
        total = n * max_tokens
    elif isinstance(train.length_norm, int):
        total = n * train.length_norm
    else:
        total = n
    return max(total, 1) / train.substeps


def training_samples(batch: Sequence[Credit], temperature: float = 1.0) -> tuple[TrainingSample, ...]:
    """The samples that are neither masked nor filtered, in the order of `batch`.

    Args:
        temperature: that of their log-probabilities.
    """
    return tuple(
        TrainingSample(
            id=str(credit.turn.id),
            prompt_tokens=credit.turn.prompt.tokens,
            tokens=credit.turn.reply.tokens,
            sampler_logprobs=credit.turn.reply.logprobs,
            advantage=credit.advantage,
            temperature=temperature,
        )
        for credit in batch
        if credit.advantage is not None and not credit.exclusion_reason
    )


def coverage_keep_probability(share: float, settings: CoverageRejection) -> float:
    """Probability of keeping a correct sample: clip((share - threshold) / ramp, 0, 1); a step function if `ramp` is 0.

    Source: Dr. Kernel, arXiv 2602.05885, profiling-based rejection sampling, with threshold 0.3 and ramp 0.1.

    Args:
        share: fraction of the device time spent in own kernels, from 0 to 1.
    """
    above = share - settings.threshold
    return min(max(above / settings.ramp, 0.0), 1.0) if settings.ramp > 0 else float(above > 0)


def _filter_low_coverage(credit: Credit, settings: CoverageRejection, seed: int) -> Credit:
    # Incorrect kernels are kept, as in the code of the paper: coverage does not matter before correctness.
    evaluation = credit.turn.evaluation
    if credit.exclusion_reason or not credit.turn.correct or evaluation is None or evaluation.own_kernel_share is None:
        return credit
    keep = coverage_keep_probability(evaluation.own_kernel_share, settings)
    uniform = derived_seed(seed, "coverage", str(credit.turn.id)) / 2**63
    return credit if uniform < keep else attrs.evolve(credit, exclusion_reason="low_coverage")


def _credit_group(
    group: Group, estimator: AdvantageFunction, returns: ReturnSettings, train: TrainSettings
) -> list[Credit]:
    valid: list[list[Turn]] = []
    credited: list[Credit] = []
    for episode in group.episodes:
        reasons = _exclusion_reasons(episode, returns.gamma)
        turns_left: list[Turn] = []
        for turn, reason in zip(episode.turns, reasons, strict=True):
            if reason:
                credited.append(Credit(turn, exclusion_reason=reason))
            else:
                turns_left.append(turn)
        if turns_left:
            valid.append(turns_left)
    if len(valid) < train.min_group_size:
        return credited + [Credit(turn, exclusion_reason="small_group") for turns in valid for turn in turns]
    values = []
    for turns in valid:
        scores = [turn.score.total for turn in turns]
        values.append(discounted_returns(scores, returns.gamma, returns.aggregate))
    advantages = estimator(values)
    uniform = train.drop_uniform_groups and not any(advantage for row in advantages for advantage in row)
    for turns, turn_returns, turn_advantages in zip(valid, values, advantages, strict=True):
        for turn, value, advantage in zip(turns, turn_returns, turn_advantages, strict=True):
            credited.append(Credit(turn, value, advantage, "uniform" if uniform else ""))
    return credited


def _exclusion_reasons(episode: Episode, gamma: float) -> list[str]:
    """[turn] reason for masking, or empty. With gamma > 0, a lost turn makes earlier returns unknown."""
    is_incomplete = gamma > 0 and any(turn.masked for turn in episode.turns)
    reason_of_others = "incomplete" if is_incomplete else ""
    return ["infra_error" if turn.masked else reason_of_others for turn in episode.turns]
