"""Paired differences between two held-out evaluations of the same tasks, for `kernelrl ablate` and
`kernelrl runs compare`.

The unit is the task. Its value is the mean over its episodes, then over the seeds. A difference is the changed result
minus the base result, and its interval is Student's t interval of the differences of the tasks. The interval covers the
choice of the tasks and the sampling of replies. It does not cover the luck of a training run: compare the seeds.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import attrs

from kernelrl_core.heldout.intervals import detectable_difference, standard_error, t_interval
from kernelrl_core.heldout.scoreboard import best_turn, counted_speedup
from kernelrl_core.types import Group

__all__ = ["METRICS", "PairedDifference", "TaskValues", "paired_differences", "shared_tasks", "task_values"]

METRICS = {
    "compiled": "share of turns that were built",
    "correct": "share of correct turns",
    "pass@1": "share of solved episodes",
    "fast_1": "share of episodes that are correct with a speedup above 1",
    "speedup": "mean speedup of the turns that represent episodes, 0 if unsolved",
    "reward": "mean score of the turn that represents an episode",
}
"""Metric -> its value for a task."""

_SHARES = ("compiled", "correct", "pass@1", "fast_1")
"""Metrics from 0 to 1, whose differences are from -1 to 1."""

TaskValues = Mapping[str, Mapping[str, float | None]]
"""Task id -> metric -> value; None if it was not measured."""


_SAME = 1e-12
"""Differences between tasks below this come from rounding."""


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
    """95 % interval of the difference over tasks; None if all tasks differ equally, or there is only one."""
    detectable: float | None = None
    """Smallest detectable difference, given the measured variance; None like `interval`."""
    by_seed: tuple[float, ...] = ()
    """The difference of each seed."""


def task_values(groups: Sequence[Group]) -> dict[str, dict[str, float | None]]:
    """Value of each metric for each task. Tasks that lost all episodes to infrastructure errors are excluded."""
    values: dict[str, dict[str, float | None]] = {}
    for group in groups:
        turns = [turn for turn in group.turns if not turn.masked]
        best = [turn for episode in group.episodes if (turn := best_turn(episode)) is not None]
        if not best:
            continue
        timed = all(turn.speedup is not None for turn in best if turn.correct)
        speedups = [counted_speedup(turn) or 0.0 for turn in best]
        values[group.task.id] = {
            "compiled": statistics.fmean(turn.evaluation is not None and turn.evaluation.compiled for turn in turns),
            "correct": statistics.fmean(turn.correct for turn in turns),
            "pass@1": statistics.fmean(turn.correct for turn in best),
            "fast_1": statistics.fmean(speedup > 1 for speedup in speedups) if timed else None,
            "speedup": statistics.fmean(speedups) if timed else None,
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
    old, new = _means_over_seeds(before), _means_over_seeds(after)
    differences = [late - early for early, late in zip(old, new, strict=True)]
    # Equal differences do not show how much tasks vary; an interval of width 0 would claim certainty.
    enough = max(differences) - min(differences) > _SAME
    interval = t_interval(differences) if enough else None
    if interval is not None and metric in _SHARES:
        interval = max(-1.0, interval[0]), min(1.0, interval[1])
    return PairedDifference(
        metric,
        base=statistics.fmean(old),
        changed=statistics.fmean(new),
        difference=statistics.fmean(differences),
        interval=interval,
        detectable=detectable_difference(standard_error(differences), len(tasks)) if enough else None,
        by_seed=tuple(
            statistics.fmean(late) - statistics.fmean(early) for early, late in zip(before, after, strict=True)
        ),
    )


def _means_over_seeds(by_seed: Sequence[Sequence[float]]) -> list[float]:
    """The mean of each task over the seeds."""
    return [statistics.fmean(values) for values in zip(*by_seed, strict=True)]


def _by_seed(metric: str, tasks: Sequence[str], evaluations: Sequence[TaskValues]) -> list[list[float]] | None:
    """For each seed the values of the tasks; None if there is no task, or one was not measured."""
    found = [[value for task in tasks if (value := values[task][metric]) is not None] for values in evaluations]
    return found if tasks and all(len(values) == len(tasks) for values in found) else None
