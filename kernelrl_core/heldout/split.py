"""Rolling out a held-out split with a policy as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelrl_core.heldout.scoreboard import scoreboard
from kernelrl_core.monitoring.events import Event, PhaseStarted
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.rollout.episode import Recorder
from kernelrl_core.rollout.groups import session_rollout
from kernelrl_core.rollout.session import Session
from kernelrl_core.tasks.selection import eval_tasks
from kernelrl_core.types import Group, SampleId, Task, Turn

__all__ = ["rollout_split", "split_metrics"]


async def rollout_split(
    session: Session,
    recorder: Recorder,
    publish: Callable[[Event], None],
    *,
    update: int,
    finished: Callable[[Sequence[Task]], Mapping[SampleId, Turn]],
) -> list[Group]:
    """All episodes at all tasks of the recipe's `eval.split`, concurrently.

    Args:
        update: number of updates before the evaluation.
        finished: turns of an interrupted evaluation, given the tasks.

    Raises:
        UsageError: the split is unknown or empty.
        BudgetReached: after the turns under way have ended.
    """
    settings = session.recipe.eval
    tasks = eval_tasks(session.environment.tasks, settings)
    publish(PhaseStarted(f"evaluating {settings.split}", len(tasks) * settings.samples * session.recipe.episode.turns))
    rollout = session_rollout(
        session, tasks, settings.samples, recorder, purpose="eval", step=update, finished=finished(tasks)
    )
    async with rollout:
        return [group async for group in rollout]


def split_metrics(groups: Sequence[Group], settings: EvalSettings) -> dict[str, Any]:
    """The numbers of the scoreboard, under `eval/`."""
    board = scoreboard(groups, settings)
    return {f"eval/{key}": value for key, value in board.items() if isinstance(value, int | float)}
