"""Rollout of a held-out split with the current policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelrl_core.heldout.scoreboard import scoreboard
from kernelrl_core.heldout.search import search_rollout
from kernelrl_core.monitoring.events import Event, PhaseStarted
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.rollout.episode import Recorder
from kernelrl_core.rollout.groups import session_rollout
from kernelrl_core.rollout.session import Session
from kernelrl_core.tasks.selection import eval_tasks
from kernelrl_core.types import Group, SampleId, Task, Turn

__all__ = ["numeric_results", "rollout_split", "split_metrics"]


async def rollout_split(
    session: Session,
    recorder: Recorder,
    publish: Callable[[Event], None],
    *,
    update: int,
    finished: Callable[[Sequence[Task]], Mapping[SampleId, Turn]],
) -> list[Group]:
    """The groups of all tasks of `eval.split`, in the order of the tasks; episodes run concurrently. With
    `eval.search` a group has one episode, the search.

    Args:
        publish: receives the phase event.
        update: number of updates before the evaluation.
        finished: returns the finished turns of an interrupted evaluation, given the tasks.

    Raises:
        UsageError: the split is unknown or empty.
        BudgetReached: the budget is spent. Raised after the turns in progress have finished.
    """
    settings = session.recipe.eval
    tasks = eval_tasks(session.environment.tasks, settings)
    turns = len(tasks) * settings.samples * session.recipe.episode.turns
    publish(PhaseStarted(f"evaluating {settings.split}", turns, "eval", update))
    done = finished(tasks)
    if settings.search is not None:
        rollout = search_rollout(session, tasks, settings.search, recorder, step=update, finished=done)
    else:
        rollout = session_rollout(
            session, tasks, settings.samples, recorder, purpose="eval", step=update, finished=done
        )
    async with rollout:
        return [group async for group in rollout]


def split_metrics(groups: Sequence[Group], settings: EvalSettings) -> dict[str, Any]:
    """The numeric values of the scoreboard, with the prefix `eval/`; where there are several levels, also of each."""
    levels = sorted({group.task.level for group in groups if group.task.level is not None})
    of_level = {
        level: scoreboard([group for group in groups if group.task.level == level], settings) for level in levels
    }
    return numeric_results({**scoreboard(groups, settings), "levels": of_level if len(levels) > 1 else {}})


def numeric_results(report: Mapping[str, Any]) -> dict[str, float]:
    """The numeric values of a scoreboard, and those of the scoreboards of its `levels`, under their names in
    `metrics.jsonl`: `eval/*` and `eval/level_*/*`."""
    boards = {"eval": report, **{f"eval/level_{level}": board for level, board in report.get("levels", {}).items()}}
    return {
        f"{prefix}/{key}": value
        for prefix, board in boards.items()
        for key, value in board.items()
        if isinstance(value, int | float)
    }
