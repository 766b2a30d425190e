"""Returns and advantages: pure functions on lists.

    scores[turn] ── discounted_returns ──> returns[episode][turn] ── an estimator ──> advantages[episode][turn]

An estimator gets the returns of one group. Episodes may differ in length. Turns lost to infrastructure errors are
removed before. Where all compared returns are equal (relative tolerance 1e-9, absolute 1e-12), the advantage is
exactly 0.

Sources:
    GRPO: DeepSeekMath, arXiv 2402.03300, section 4.1.     Dr. GRPO: arXiv 2503.20783, section 3.
    RLOO: arXiv 2402.14740, section 3.3.                   TRLOO: Dr. Kernel, arXiv 2602.05885.
    Clipped normalised rewards: CUDA-L1, arXiv 2507.14111.
    Each turn a training sample, discounted sum or maximum over later turns, all turns of a group compared with each
    other: Kevin, arXiv 2507.11948.

Differences from the papers:
    - `grpo` divides by the population standard deviation by default; the papers disagree. No epsilon is added to the
      deviation, because equal returns are handled separately.
    - `rloo` with several turns excludes all turns of the same episode from the mean. They depend on each other, so
      excluding only the current turn would leave the mean dependent on it.
    - In `trloo` and `per_turn`, later turns have fewer episodes to compare with. Below `min_attempts` episodes they
      compare with all turns, as `rloo` and `grpo` do.
    - The loss denominator and the filter of uniform groups are in `credit`; the clipping of ratios is in the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

__all__ = ["Estimate", "Std", "discounted_returns", "dr_grpo", "grpo", "per_turn", "rloo", "trloo"]

Std = Literal["population", "sample", "none"]
"""Divisor of the centred returns: standard deviation with N, standard deviation with N - 1, or 1."""

Estimate = Callable[[Sequence[Sequence[float]]], list[list[float]]]
"""An estimator with its options bound: returns[episode][turn] to advantages[episode][turn]."""

Returns = Sequence[Sequence[float]]
"""returns[episode][turn] of one group, ragged."""


def discounted_returns(scores: Sequence[float], gamma: float, aggregate: str) -> list[float]:
    """Returns of the turns of one episode, in the shape of `scores`.

    `sum`: R_t = s_t + gamma R_(t+1). `max`: R_t = max over i >= t of gamma^(i-t) s_i.

    Source: Kevin, arXiv 2507.11948 (both aggregates).

    Args:
        scores: [turn] scores.
        gamma: discount factor per turn, from 0 to 1.
        aggregate: `sum` or `max`.

    Raises:
        ValueError: `aggregate` is neither.
    """
    if aggregate not in ("sum", "max"):
        raise ValueError(f"aggregate must be 'sum' or 'max', not {aggregate!r}")
    returns: list[float] = []
    for score in reversed(scores):
        if not returns:
            returns.append(score)
        elif aggregate == "sum":
            returns.append(score + gamma * returns[-1])
        else:
            # The maximum over the later turns is already discounted to turn t + 1, so one more factor is enough.
            returns.append(max(score, gamma * returns[-1]))
    return returns[::-1]


def grpo(returns: Returns, std: Std = "population", clip: float | None = None) -> list[list[float]]:
    """GRPO: A = (R - mean) / std, with mean and standard deviation over all turns of all episodes of the group.

    Source: DeepSeekMath, arXiv 2402.03300, section 4.1; over all turns as in Kevin, arXiv 2507.11948; `clip` as in
    CUDA-L1, arXiv 2507.14111 (there 1.5).

    Args:
        returns: returns[episode][turn].
        std: divisor of R - mean.
        clip: limits A to [-clip, clip], so that one kernel with an extreme speedup does not dominate the update. None:
            no limit.
    """
    all_turns = _flat(returns)
    bound = math.inf if clip is None else clip
    return [[min(max(_normalised(value, all_turns, std), -bound), bound) for value in episode] for episode in returns]


def dr_grpo(returns: Returns) -> list[list[float]]:
    """Dr. GRPO: A = R - mean over all turns of all episodes of the group.

    Source: Dr. GRPO, arXiv 2503.20783, section 3. Its constant length norm is `train.length_norm: max_tokens`.
    """
    return grpo(returns, std="none")


def rloo(returns: Returns) -> list[list[float]]:
    """RLOO: A = R - mean over all turns of the other episodes; 0 where there is no other episode.

    Source: RLOO, arXiv 2402.14740, section 3.3, which has one turn per episode.
    """
    return [[value - _mean_of(_others(returns, i), value) for value in episode] for i, episode in enumerate(returns)]


def trloo(returns: Returns, min_attempts: int = 2) -> list[list[float]]:
    """TRLOO: A_t = R_t - mean of the other episodes' returns at the same turn t.

    Source: Dr. Kernel, arXiv 2602.05885.

    Args:
        returns: returns[episode][turn].
        min_attempts: a turn that fewer episodes reached is compared as in `rloo`. Values below 2 count as 2.
    """
    advantages: list[list[float]] = []
    for i, episode in enumerate(returns):
        row = []
        for turn, value in enumerate(episode):
            others = [other[turn] for j, other in enumerate(returns) if j != i and turn < len(other)]
            if len(others) + 1 < max(min_attempts, 2):
                others = _others(returns, i)
            row.append(value - _mean_of(others, value))
        advantages.append(row)
    return advantages


def per_turn(returns: Returns, std: Std = "none", min_attempts: int = 2) -> list[list[float]]:
    """A_t = (R_t - mean) / std, with mean and standard deviation over all episodes of the group at the same turn t.

    Source: `grpo` applied to each turn index separately; not from a paper.

    Args:
        returns: returns[episode][turn].
        std: divisor of R_t - mean.
        min_attempts: a turn that fewer episodes reached is compared as in `grpo`. Values below 2 count as 2.
    """
    all_turns = _flat(returns)
    advantages: list[list[float]] = []
    for episode in returns:
        row = []
        for turn, value in enumerate(episode):
            peers = [other[turn] for other in returns if turn < len(other)]
            row.append(_normalised(value, peers if len(peers) >= max(min_attempts, 2) else all_turns, std))
        advantages.append(row)
    return advantages


def _flat(returns: Returns) -> list[float]:
    return [value for episode in returns for value in episode]


def _others(returns: Returns, i: int) -> list[float]:
    return [value for j, episode in enumerate(returns) if j != i for value in episode]


def _equal(values: Sequence[float]) -> bool:
    # Rounding makes mathematically equal returns differ in the last bits. Divided by a deviation of the same size,
    # such a difference would become an advantage of about 1.
    return math.isclose(min(values), max(values), rel_tol=1e-9, abs_tol=1e-12)


def _mean_of(others: Sequence[float], value: float) -> float:
    """Mean of `others`; `value` itself where they are empty or all equal to it, so that the advantage is exactly 0."""
    return value if _equal([*others, value]) else math.fsum(others) / len(others)


def _normalised(value: float, group: Sequence[float], std: Std) -> float:
    if _equal(group):
        return 0.0
    mean = math.fsum(group) / len(group)
    if std == "none":
        return value - mean
    squares = math.fsum((other - mean) ** 2 for other in group)
    return (value - mean) / math.sqrt(squares / (len(group) if std == "population" else len(group) - 1))
