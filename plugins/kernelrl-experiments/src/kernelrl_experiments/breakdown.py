"""A held-out evaluation in detail: intervals, and results by level, by turn and by budget.

A budget is a number of episodes and a number of turns. Its results are estimated from the episodes of the evaluation,
without new ones: of each episode only the first turns count, and of the episodes of a task all subsets of that size.

Source of best@k and avg@k over turns, where an unsolved episode has speedup 0: Kevin, arXiv 2507.11948.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import attrs

from kernelrl_core.heldout.scoreboard import best_turn, counted_speedup, measures, outcome_counts, scoreboard
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.types import Episode, Group

__all__ = ["best_of_subset", "breakdown", "intervals"]


Solved = Sequence[Sequence[tuple[bool, float | None]]]
"""For each task: whether each episode is solved, and its counted speedup."""


def breakdown(groups: Sequence[Group], settings: EvalSettings) -> dict[str, Any]:
    """`intervals` of the results, and results by level (`levels`), by turn (`turns`) and by budget (`budgets`)."""
    last = max((len(episode.turns) for group in groups for episode in group.episodes), default=0)
    within = [_within(groups, turns) for turns in range(1, last + 1)]
    episodes = min((len(found) for found in within[0]), default=0) if within else 0
    return {
        "intervals": intervals(groups, settings),
        "levels": _levels(groups, settings),
        "turns": [
            {
                **_turn(groups, number),
                f"best@{episodes}": _budget(solved, episodes),
                f"avg@{episodes}": _budget(solved, 1),
            }
            for number, solved in enumerate(within, 1)
            if episodes
        ],
        "budgets": [
            {"episodes": k, "turns": turns, **_budget(solved, k)}
            for k in range(1, episodes + 1)
            for turns, solved in enumerate(within, 1)
        ],
    }


def intervals(groups: Sequence[Group], settings: EvalSettings) -> dict[str, dict[str, Any]]:
    """Result -> its 95 % interval: `low`, `high`, `tasks`, `method`, `quality`. Results without one are absent."""
    found = {key: measure.interval() for key, measure in measures(groups, settings).items()}
    return {
        key: {**attrs.asdict(interval), "quality": interval.quality}
        for key, interval in found.items()
        if interval is not None
    }


def best_of_subset(values: Sequence[float], k: int) -> float:
    """Expected maximum of k values, drawn without replacement: sum of x(i) C(i - 1, k - 1) / C(n, k) over the sorted
    values x(1) to x(n). For k = 1 the mean, for k = n the maximum; for values 0 and 1 it equals `pass_at_k`.

    Raises:
        ValueError: there are fewer than k values, or k is below 1.
    """
    n = len(values)
    if not 1 <= k <= n:
        raise ValueError(f"the best of {k} needs at least {k} values, there are {n}")
    return math.fsum(x * math.comb(i, k - 1) for i, x in enumerate(sorted(values))) / math.comb(n, k)


def _levels(groups: Sequence[Group], settings: EvalSettings) -> dict[str, dict[str, Any]]:
    """Level -> its scoreboard with intervals; empty if no task has a level."""
    levels = sorted({group.task.level for group in groups if group.task.level is not None})
    rows = {}
    for level in levels:
        chosen = [group for group in groups if group.task.level == level]
        rows[str(level)] = {**scoreboard(chosen, settings), "intervals": intervals(chosen, settings)}
    return rows


def _turn(groups: Sequence[Group], number: int) -> dict[str, Any]:
    """Results of the replies of one turn, whatever the other turns of their episodes."""
    turns = [
        turn
        for group in groups
        for episode in group.episodes
        for turn in episode.turns[number - 1 : number]
        if not turn.masked
    ]
    compiled = [turn.evaluation is not None and turn.evaluation.compiled for turn in turns]
    return {
        "turn": number,
        "num_replies": len(turns),
        "compile_rate": statistics.fmean(compiled) if turns else None,
        "correct_rate": statistics.fmean(turn.correct for turn in turns) if turns else None,
        "outcomes": outcome_counts(turns),
    }


def _within(groups: Sequence[Group], turns: int) -> Solved:
    """The episodes as if they had ended after a number of turns. Lost ones, and tasks without others, are excluded."""
    tasks = [[best_turn(Episode(episode.turns[:turns])) for episode in group.episodes] for group in groups]
    solved = [[(best.correct, counted_speedup(best)) for best in found if best is not None] for found in tasks]
    return [found for found in solved if found]


def _budget(solved: Solved, episodes: int) -> dict[str, float | None]:
    """Means over tasks of the best of a number of episodes: share solved, and speedup, 0 if unsolved. The speedup is
    None if a correct kernel was not timed."""
    timed = all(speedup is not None for found in solved for correct, speedup in found if correct)
    speedups = (best_of_subset([speedup or 0.0 for _, speedup in found], episodes) for found in solved)
    return {
        "correct": statistics.fmean(
            best_of_subset([float(correct) for correct, _ in found], episodes) for found in solved
        ),
        "speedup": statistics.fmean(speedups) if timed else None,
    }
