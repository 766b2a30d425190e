"""From scores to advantages, top to bottom, on plain lists.

    scores[turn] ── discounted_returns ──> returns[attempt][turn] ── an estimator ──> advantages[attempt][turn]

An estimator sees one group: the returns of all valid attempts at one task in one step. Attempts may differ in length.
Turns and attempts lost to the infrastructure are left out before. Where all returns that are compared are equal, the
advantages are exactly 0.

Sources:
    GRPO: DeepSeekMath, arXiv 2402.03300, section 4.1.     Dr. GRPO: arXiv 2503.20783, section 3.
    RLOO: arXiv 2402.14740, section 3.3.                   TRLOO: Dr. Kernel, arXiv 2602.05885.
    Clipped normalised rewards: CUDA-L1, arXiv 2507.14111.
    Every turn a sample, discounted sum or maximum over later turns, one group for all turns: Kevin, arXiv 2507.11948.

Departures from them:
    - The standard deviation of GRPO is `population` unless the recipe says otherwise; papers do not agree on it. It is
      never padded with an epsilon: equal returns are treated apart.
    - RLOO over several turns compares with all turns of the *other* attempts. The turns of one attempt depend on each
      other, so leaving out the sample alone would not make the baseline independent of it.
    - TRLOO and the baseline per turn compare with fewer attempts the later the turn. Below `min_attempts` they fall
      back to the baseline over all turns: that of RLOO and that of GRPO.
    - Clipping, length normalisation and the filter of uniform groups belong to the loss and to the batch: see `credit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

__all__ = ["Estimate", "Std", "discounted_returns", "dr_grpo", "grpo", "per_turn", "rloo", "trloo"]

Std = Literal["population", "sample", "none"]
"""What centred returns are divided by: the deviation with divisor N, with divisor N - 1, or nothing."""

Estimate = Callable[[Sequence[Sequence[float]]], list[list[float]]]
"""An estimator with its options bound."""

Returns = Sequence[Sequence[float]]
"""[attempt][turn], ragged."""


def discounted_returns(scores: Sequence[float], gamma: float, aggregate: str) -> list[float]:
    """[turn] return of every turn of one attempt.

    `sum`: R_t = s_t + gamma R_(t+1); `max`: R_t = max over i >= t of gamma^(i-t) s_i.

    Raises:
        ValueError: another `aggregate`.
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
            # The best of the later turns is already discounted to the next one, so one more factor is enough.
            returns.append(max(score, gamma * returns[-1]))
    return returns[::-1]


def grpo(returns: Returns, std: Std = "population", clip: float | None = None) -> list[list[float]]:
    """Distance from the mean of the group, over all turns of all attempts, in units of their deviation.

    With `clip` it is kept between -clip and clip (CUDA-L1, arXiv 2507.14111, with 1.5): one lucky kernel of 100 times
    the usual speed then teaches no more than a good one.
    """
    everything = _flat(returns)
    bound = math.inf if clip is None else clip
    return [[min(max(_normalised(value, everything, std), -bound), bound) for value in attempt] for attempt in returns]


def dr_grpo(returns: Returns) -> list[list[float]]:
    """Distance from the mean of the group, not divided by anything."""
    return grpo(returns, std="none")


def rloo(returns: Returns) -> list[list[float]]:
    """Distance from the mean over all turns of the other attempts; 0 where there is no other attempt."""
    return [[value - _mean_of(_others(returns, i), value) for value in attempt] for i, attempt in enumerate(returns)]


def trloo(returns: Returns, min_attempts: int = 2) -> list[list[float]]:
    """Distance from the mean of the other attempts at the same turn.

    A turn that fewer than `min_attempts` attempts reached (at least 2) takes the baseline of `rloo`.
    """
    advantages: list[list[float]] = []
    for i, attempt in enumerate(returns):
        row = []
        for turn, value in enumerate(attempt):
            others = [other[turn] for j, other in enumerate(returns) if j != i and turn < len(other)]
            if len(others) + 1 < max(min_attempts, 2):
                others = _others(returns, i)
            row.append(value - _mean_of(others, value))
        advantages.append(row)
    return advantages


def per_turn(returns: Returns, std: Std = "none", min_attempts: int = 2) -> list[list[float]]:
    """Distance from the mean of all attempts at the same turn, in units of their deviation when `std` says so.

    A turn that fewer than `min_attempts` attempts reached (at least 2) is compared with all turns, as in `grpo`.
    """
    everything = _flat(returns)
    advantages: list[list[float]] = []
    for attempt in returns:
        row = []
        for turn, value in enumerate(attempt):
            peers = [other[turn] for other in returns if turn < len(other)]
            row.append(_normalised(value, peers if len(peers) >= max(min_attempts, 2) else everything, std))
        advantages.append(row)
    return advantages


def _flat(returns: Returns) -> list[float]:
    return [value for attempt in returns for value in attempt]


def _others(returns: Returns, i: int) -> list[float]:
    return [value for j, attempt in enumerate(returns) if j != i for value in attempt]


def _equal(values: Sequence[float]) -> bool:
    # Returns that are equal on paper differ in the last bits when they were summed in another order. Dividing such a
    # difference by a deviation of the same size would make an advantage of 1 out of nothing.
    return math.isclose(min(values), max(values), rel_tol=1e-9, abs_tol=1e-12)


def _mean_of(others: Sequence[float], value: float) -> float:
    """Mean of the others, or the value itself where nothing differs from it."""
    return value if _equal([*others, value]) else math.fsum(others) / len(others)


def _normalised(value: float, group: Sequence[float], std: Std) -> float:
    if _equal(group):
        return 0.0
    mean = math.fsum(group) / len(group)
    if std == "none":
        return value - mean
    squares = math.fsum((other - mean) ** 2 for other in group)
    return (value - mean) / math.sqrt(squares / (len(group) if std == "population" else len(group) - 1))
