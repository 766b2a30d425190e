"""Paired differences between two held-out evaluations of the same tasks, for `kernelrl ablate`.

The unit is the task. Its value is the mean over its episodes, then over the seeds. A difference is the changed recipe
minus the base recipe, and its interval is Student's t interval of the differences of the tasks. The interval covers the
choice of the tasks and the sampling of replies. It does not cover the luck of a training run: compare the seeds.

Sources: paired analysis by task and its power: arXiv 2411.00640, sections 4.2 and 5, with quantiles of Student's t
distribution in place of the normal distribution, because held-out splits are small. Distribution function of t:
Abramowitz and Stegun, equations 26.7.3 and 26.7.4.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import attrs

from kernelrl_core.heldout.scoreboard import best_turn, counted_speedup
from kernelrl_core.types import Group

__all__ = [
    "METRICS",
    "PairedDifference",
    "TaskValues",
    "detectable_difference",
    "expected_error",
    "paired_differences",
    "shared_tasks",
    "t_interval",
    "t_quantile",
    "task_values",
]

METRICS = {
    "correct": "share of correct turns",
    "pass@1": "share of solved episodes",
    "fast_1": "share of episodes that are correct with a speedup above 1",
    "reward": "mean score of the turn that represents an episode",
}
"""Metric -> its value for a task."""

POWER = 0.8
"""Probability that a true difference of the detectable size gets an interval without 0."""

TaskValues = Mapping[str, Mapping[str, float | None]]
"""Task id -> metric -> value; None if it was not measured."""


@attrs.frozen
class PairedDifference:
    """Difference in one metric. Values are None if the metric was not measured for every task."""

    metric: str
    """A key of `METRICS`."""
    base: float | None = None
    """Mean over the tasks with the base recipe."""
    changed: float | None = None
    """Mean over the tasks with the changed recipe."""
    difference: float | None = None
    """`changed` minus `base`."""
    interval: tuple[float, float] | None = None
    """95 % interval of the difference over tasks; None with fewer than two tasks."""
    detectable: float | None = None
    """Smallest detectable difference, given the measured variance."""
    by_seed: tuple[float, ...] = ()
    """The difference of each seed."""


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
    half = t_quantile(0.975, len(values) - 1) * _standard_error(values)
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


def task_values(groups: Sequence[Group]) -> dict[str, dict[str, float | None]]:
    """Value of each metric for each task. Tasks that lost all episodes to infrastructure errors are excluded."""
    values: dict[str, dict[str, float | None]] = {}
    for group in groups:
        turns = [turn for episode in group.episodes for turn in episode.turns if not turn.masked]
        best = [turn for episode in group.episodes if (turn := best_turn(episode)) is not None]
        if not best:
            continue
        timed = all(turn.speedup is not None for turn in best if turn.correct)
        values[group.task.id] = {
            "correct": statistics.fmean(turn.correct for turn in turns),
            "pass@1": statistics.fmean(turn.correct for turn in best),
            "fast_1": statistics.fmean((counted_speedup(turn) or 0.0) > 1 for turn in best) if timed else None,
            "reward": statistics.fmean(turn.score.total for turn in best),
        }
    return values


def paired_differences(base: Sequence[TaskValues], changed: Sequence[TaskValues]) -> list[PairedDifference]:
    """Differences in all metrics, over the tasks that have values in every evaluation.

    Args:
        base: values of the evaluations with the base recipe, in the order of the seeds.
        changed: values of the evaluations with the changed recipe, in the same order.

    Raises:
        ValueError: there is no evaluation, or not the same number of both.
    """
    if not base or len(base) != len(changed):
        raise ValueError(f"{len(base)} base and {len(changed)} changed evaluations cannot be paired")
    tasks = shared_tasks([*base, *changed])
    return [_difference(metric, tasks, base, changed) for metric in METRICS]


def shared_tasks(evaluations: Sequence[TaskValues]) -> list[str]:
    """Ids of the tasks that have values in every evaluation, in the order of the first."""
    return [task for task in evaluations[0] if all(task in values for values in evaluations)]


def _difference(
    metric: str, tasks: Sequence[str], base: Sequence[TaskValues], changed: Sequence[TaskValues]
) -> PairedDifference:
    before, after = _by_seed(metric, tasks, base), _by_seed(metric, tasks, changed)
    if before is None or after is None:
        return PairedDifference(metric)
    old, new = ([statistics.fmean(values) for values in zip(*by_seed, strict=True)] for by_seed in (before, after))
    differences = [late - early for early, late in zip(old, new, strict=True)]
    enough = len(tasks) > 1
    return PairedDifference(
        metric,
        base=statistics.fmean(old),
        changed=statistics.fmean(new),
        difference=statistics.fmean(differences),
        interval=t_interval(differences) if enough else None,
        detectable=detectable_difference(_standard_error(differences), len(tasks)) if enough else None,
        by_seed=tuple(
            statistics.fmean(late) - statistics.fmean(early) for early, late in zip(before, after, strict=True)
        ),
    )


def _by_seed(metric: str, tasks: Sequence[str], evaluations: Sequence[TaskValues]) -> list[list[float]] | None:
    """For each seed the values of the tasks; None if there is no task, or one was not measured."""
    found = [[value for task in tasks if (value := values[task][metric]) is not None] for values in evaluations]
    return found if tasks and all(len(values) == len(tasks) for values in found) else None


def _standard_error(values: Sequence[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))
