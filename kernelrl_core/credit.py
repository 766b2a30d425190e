"""Credit of every sample of a step: return, advantage, and whether it is trained on.

The batch is fixed here, in this order: mask what the infrastructure spoilt, returns, advantages, fix the divisor of the
loss, leave out groups without a signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kernelrl_core.advantages import discounted_returns
from kernelrl_core.kinds import Estimator, TrainingSample
from kernelrl_core.recipe.schema import ReturnSettings, TrainSettings
from kernelrl_core.values import Episode, Group, Turn

__all__ = ["Credit", "assign_credit", "loss_normaliser", "training_samples"]


@attrs.frozen
class Credit:
    """What one sample earned."""

    turn: Turn
    value: float | None = None
    """Return; None when the sample is masked."""
    advantage: float | None = None
    """None when the sample is masked."""
    dropped: str = ""
    """Why it is not trained on: `infra_error` (it was lost), `incomplete` (a later turn of its attempt was lost, so its
    return is not known), `small_group` (too few attempts are left), `uniform` (all advantages of its group are 0).
    Empty: it is trained on."""

    @property
    def masked(self) -> bool:
        return self.advantage is None

    def row(self) -> dict[str, Any]:
        """Row of `credits.jsonl`."""
        return {
            "sample": str(self.turn.id),
            "step": self.turn.id.step,
            "reward": None if self.turn.masked else self.turn.score.total,
            "return": self.value,
            "advantage": self.advantage,
            "masked": self.masked,
            "filtered": self.dropped == "uniform",
            "reason": self.dropped,
        }


def assign_credit(
    groups: Sequence[Group], estimator: Estimator, returns: ReturnSettings, train: TrainSettings
) -> list[Credit]:
    """Credits in canonical order: (task, attempt, turn)."""
    batch = [credit for group in groups for credit in _credit_group(group, estimator, returns, train)]
    return sorted(batch, key=lambda credit: credit.turn.id)


def loss_normaliser(batch: Sequence[Credit], train: TrainSettings, max_tokens: int) -> float:
    """Divisor of the summed token loss. It counts filtered samples too, so it does not depend on the filter."""
    turns = [credit.turn for credit in batch if not credit.masked]
    if train.length_norm == "tokens":
        divisor = sum(len(turn.reply.tokens) for turn in turns)
    elif train.length_norm == "max_tokens":
        divisor = len(turns) * max_tokens
    elif train.length_norm == "none":
        divisor = len(turns)
    else:
        divisor = len(turns) * train.length_norm
    return float(max(divisor, 1))


def training_samples(batch: Sequence[Credit]) -> tuple[TrainingSample, ...]:
    """What the policy learns from, in canonical order."""
    return tuple(
        TrainingSample(
            id=str(credit.turn.id),
            prompt_tokens=credit.turn.prompt.tokens,
            tokens=credit.turn.reply.tokens,
            logprobs=credit.turn.reply.logprobs,
            advantage=credit.advantage,
        )
        for credit in batch
        if credit.advantage is not None and not credit.dropped
    )


def _credit_group(group: Group, estimator: Estimator, returns: ReturnSettings, train: TrainSettings) -> list[Credit]:
    reasons = [_spoilt(episode, returns.gamma) for episode in group.episodes]
    valid = [
        [turn for turn, why in zip(e.turns, r, strict=True) if not why]
        for e, r in zip(group.episodes, reasons, strict=True)
    ]
    attempts = [turns for turns in valid if turns]
    credited = [
        Credit(turn, dropped=why)
        for episode, row in zip(group.episodes, reasons, strict=True)
        for turn, why in zip(episode.turns, row, strict=True)
        if why
    ]
    if len(attempts) < train.min_group_size:
        return credited + [Credit(turn, dropped="small_group") for turns in attempts for turn in turns]
    values = [
        discounted_returns([t.score.total for t in turns], returns.gamma, returns.aggregate) for turns in attempts
    ]
    advantages = estimator(values)
    uniform = train.drop_uniform_groups and not any(a for row in advantages for a in row)
    for turns, row, earned in zip(attempts, values, advantages, strict=True):
        for turn, value, advantage in zip(turns, row, earned, strict=True):
            credited.append(Credit(turn, value, advantage, "uniform" if uniform else ""))
    return credited


def _spoilt(episode: Episode, gamma: float) -> list[str]:
    """[turn] why it is masked. A lost turn hides what the earlier ones led to, unless they are not paid for that."""
    lost = any(turn.masked for turn in episode.turns)
    return ["infra_error" if turn.masked else "incomplete" if lost and gamma > 0 else "" for turn in episode.turns]
