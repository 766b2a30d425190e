"""Trends of metrics over the steps of a run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import attrs

from kernelrl_core.api.monitoring import FINDING_PREFIX
from kernelrl_core.api.runs import metric_of

__all__ = ["Trend", "direction_of", "is_share", "points_of", "trend_of"]

_WINDOW = 5
"""Most steps in a mean."""
_LEAST_POINTS = 4
"""Fewer values have no trend."""
_LEAST_SHARE = 0.02
"""Least change of a share that is a change."""
_LEAST_RELATIVE = 0.05
"""Least change of another metric, relative to its largest mean."""
_ERRORS = 3.0
"""Standard errors of a mean that a change must exceed."""
_DEVIATION = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""


@attrs.frozen
class Trend:
    """The course of a metric, as means over a few steps."""

    first: float
    last: float
    best: float
    """Highest mean."""
    best_step: int
    """First step of the highest mean."""
    size: float
    """Difference of the highest and the lowest mean: of a share as it is, of another metric relative to the largest
    absolute mean."""
    changed: bool
    """Whether highest and lowest mean differ by more than the noise from step to step."""
    direction: int
    """1: the last mean is above the first one by more than the noise; -1: below; 0: neither."""

    @property
    def collapsed(self) -> bool:
        """Whether the last mean is less than half of the highest one, and the difference is no noise."""
        return self.changed and self.last < self.best / 2


def is_share(name: str) -> bool:
    """Whether a metric is a share from 0 to 1."""
    metric = metric_of(name)
    return metric is not None and metric.unit == "share"


def points_of(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """Step and value of a metric, in order; of a held-out result the number of updates before it, and value."""
    if name.startswith(FINDING_PREFIX):  # absent from the steps without it
        return [(row["step"], float(row.get(name, 0.0))) for row in rows]
    if not name.startswith("eval/"):
        return [(row["step"], float(row[name])) for row in rows if row.get(name) is not None]
    start = name.replace("eval/", "eval_start/", 1)
    before = [(0, float(row[start])) for row in rows if row.get(start) is not None]
    return before + [(row["step"] + 1, float(row[name])) for row in rows if row.get(name) is not None]


def direction_of(first: float, last: float, least: float) -> int:
    """1: up, -1: down; 0: the difference is at most `least`."""
    if abs(last - first) <= least:
        return 0
    return 1 if last > first else -1


def trend_of(points: Sequence[tuple[int, float]], *, share: bool, least_points: int = _LEAST_POINTS) -> Trend | None:
    """The trend of a metric; None for too few values.

    The noise is estimated from the median absolute difference of neighbouring values, so a single jump is no noise.

    Args:
        points: step and value.
        share: whether the metric is a share from 0 to 1.
        least_points: fewer values have no trend.
    """
    values = [value for _, value in points]
    if len(values) < max(least_points, 2):
        return None
    window = max(1, min(_WINDOW, len(values) // 10))
    means = [statistics.fmean(values[begin : begin + window]) for begin in range(len(values) - window + 1)]
    steps = [abs(after - before) for before, after in pairwise(values)]
    error = _DEVIATION * statistics.median(steps) / (2 * window) ** 0.5
    largest = max(abs(mean) for mean in means)
    scale = 1.0 if share else largest or 1.0
    least = max(_ERRORS * error, _LEAST_SHARE if share else _LEAST_RELATIVE * largest)
    first, last, best = means[0], means[-1], max(means)
    spread = best - min(means)
    direction = direction_of(first, last, least)
    return Trend(first, last, best, points[means.index(best)][0], spread / scale, spread > least, direction)
