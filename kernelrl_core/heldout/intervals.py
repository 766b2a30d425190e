"""Statistics of held-out evaluations: 95 % intervals over tasks, and the smallest detectable difference.

The independent unit is the task, because the episodes of one task are correlated. `ratio_interval` is that of a result:
Wilson's interval for a rate, because resamples of a rate near 0 or 1 hardly differ, and a bootstrap over tasks for a
mean or a speedup. `t_interval` is that of the mean of paired differences, which are nearly symmetric.

Sources: bootstrap with expanded percentiles: T. Hesterberg, arXiv 1411.5279. Paired analysis by task and its
power: arXiv 2411.00640, sections 4.2 and 5, with quantiles of Student's t distribution in place of the normal
distribution, because held-out splits are small. Distribution function of t: Abramowitz and Stegun, equations 26.7.3 and
26.7.4. `benchmarks/interval_coverage.py` measures the coverage.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Literal

import attrs

__all__ = [
    "GOOD_TASKS",
    "ROUGH_TASKS",
    "Interval",
    "detectable_difference",
    "expected_error",
    "quality",
    "ratio_interval",
    "standard_error",
    "t_interval",
    "t_quantile",
    "wilson_interval",
]

GOOD_TASKS, ROUGH_TASKS = 50, 20
"""Fewest tasks of an interval that is not rough, and of one that is rough but not very rough."""

POWER = 0.8
"""Probability that a true difference of the detectable size gets an interval without 0."""

_RESAMPLES = 2000
_FEW = 5
"""With fewer tasks above 0, or fewer below 1, the variance between tasks is not estimated."""


@attrs.frozen
class Interval:
    """95 % interval of a result."""

    low: float
    high: float
    tasks: int
    """Number of tasks that contribute."""
    method: Literal["bootstrap", "wilson"]

    @property
    def quality(self) -> Quality:
        return quality(self.tasks)


Quality = Literal["good", "rough", "very rough"]


def quality(tasks: int) -> Quality:
    """Quality of an interval over a number of tasks: coverage is close to 95 % for `good` ones only."""
    if tasks >= GOOD_TASKS:
        return "good"
    return "rough" if tasks >= ROUGH_TASKS else "very rough"


def ratio_interval(sums: Sequence[float], counts: Sequence[float], *, rate: bool) -> Interval | None:
    """95 % interval of sum(sums) / sum(counts), such as the share of solved episodes. None with fewer than two tasks.

    A rate gets Wilson's interval. Its sample size is p (1 - p) / V, with the variance V of the ratio over tasks, and at
    least the number of tasks n; it is n if fewer than 5 tasks are above 0, or fewer than 5 below 1.

    Another ratio gets a bootstrap: 2,000 resamples of the tasks, always the same ones for a number of tasks. The
    percentiles are those of Student's t distribution, P = Φ(-t(0.975, n - 1) sqrt(n / (n - 1))) and 1 - P, so that few
    tasks give a wider interval.

    Args:
        sums: numerator of each task.
        counts: denominator of each task; tasks with 0 do not contribute.
        rate: the ratio is a share, from 0 to 1.
    """
    kept = [(top, bottom) for top, bottom in zip(sums, counts, strict=True) if bottom]
    n = len(kept)
    if n < 2:
        return None
    tops, bottoms = zip(*kept, strict=True)
    if rate:
        share = math.fsum(tops) / math.fsum(bottoms)
        return Interval(*wilson_interval(share, _sample_size(kept, share)), n, "wilson")
    ratios = sorted(sum(pick(tops)) / sum(pick(bottoms)) for pick in _resamples(n))
    tail = statistics.NormalDist().cdf(-t_quantile(0.975, n - 1) * math.sqrt(n / (n - 1)))
    return Interval(_quantile(ratios, tail), _quantile(ratios, 1 - tail), n, "bootstrap")


def _sample_size(tasks: Sequence[tuple[float, float]], share: float) -> float:
    """Number of independent observations that a rate has as much information as."""
    n = len(tasks)
    if min(sum(top > 0 for top, _ in tasks), sum(top < bottom for top, bottom in tasks)) < _FEW:
        return n
    squares = math.fsum((top - share * bottom) ** 2 for top, bottom in tasks)
    variance = n / (n - 1) * squares / math.fsum(bottom for _, bottom in tasks) ** 2
    return max(n, share * (1 - share) / variance) if variance else n


@lru_cache(maxsize=16)
def _resamples(n: int) -> tuple[Callable[[Sequence[float]], tuple[float, ...]], ...]:
    """Functions that select n of n values with replacement."""
    source = random.Random(n)
    return tuple(itemgetter(*source.choices(range(n), k=n)) for _ in range(_RESAMPLES))


def _quantile(ordered: Sequence[float], probability: float) -> float:
    """Quantile of ordered values, interpolated linearly."""
    place = probability * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def wilson_interval(share: float, n: float) -> tuple[float, float]:
    """95 % Wilson score interval (low, high) of a proportion `share` observed in `n` independent units.

    Source: Wilson 1927, with z = 1.959964.

    Raises:
        ZeroDivisionError: n is 0.
    """
    z = 1.959964
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t distribution, to about 1e-12 relative.

    Args:
        probability: above 0.5 and below 1.
        degrees: degrees of freedom, at least 1.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0.5 < probability < 1 or degrees < 1:
        raise ValueError(f"no quantile for probability {probability} and {degrees} degrees of freedom")
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        angle = (low + high) / 2
        if (1 + _central_probability(angle, degrees)) / 2 < probability:
            low = angle
        else:
            high = angle
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _central_probability(angle: float, degrees: int) -> float:
    """P(|T| < sqrt(degrees) tan(angle)): equation 26.7.3 for odd, 26.7.4 for even degrees of freedom."""
    cosine, odd = math.cos(angle), degrees % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(1 + odd, degrees, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % t interval of the mean: mean ± t(0.975, n - 1) s / sqrt(n), with the sample deviation s.

    Raises:
        ValueError: fewer than two values.
    """
    mean = statistics.fmean(values)
    half = t_quantile(0.975, len(values) - 1) * standard_error(values)
    return mean - half, mean + half


def detectable_difference(standard_error: float, tasks: int) -> float:
    """Smallest detectable difference: (t(0.975, n - 1) + t(0.8, n - 1)) times the standard error.

    A true difference of this size gets a 95 % interval without 0 with probability 0.8. Source: arXiv 2411.00640,
    section 5.

    Raises:
        ValueError: fewer than two tasks.
    """
    return (t_quantile(0.975, tasks - 1) + t_quantile(POWER, tasks - 1)) * standard_error


def expected_error(tasks: int, episodes: int) -> float:
    """Expected standard error of the difference in a share, before anything is measured.

    sqrt((w² + 2 s² / m) / n), with the variance w² = 1/9 of the tasks' true differences and the variance s² = 1/6 of
    one episode. These are the values of the source for tasks whose success rates are spread evenly over 0 to 1.
    Source: arXiv 2411.00640, section 5.

    Args:
        tasks: number n of tasks.
        episodes: number m of episodes per task with each recipe, over all seeds.
    """
    return math.sqrt((1 / 9 + 2 / 6 / episodes) / tasks)


def standard_error(values: Sequence[float]) -> float:
    """Standard error of the mean: s / sqrt(n), with the sample deviation s.

    Raises:
        ValueError: fewer than two values.
    """
    return statistics.stdev(values) / math.sqrt(len(values))
