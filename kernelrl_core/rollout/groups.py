"""All episodes of several tasks, concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kernelrl_core.monitoring.costs import BudgetReached
from kernelrl_core.rollout.episode import Player
from kernelrl_core.types import Episode, Group, Task

__all__ = ["rollout_groups"]


async def rollout_groups(
    player: Player,
    step: int,
    tasks: Sequence[Task],
    attempts: int,
    complete: Callable[[int, Group], None] = lambda index, group: None,
) -> list[Group]:
    """All attempts at all tasks, at once: whoever is sampled is judged while the others are still being sampled.

    Args:
        complete: called with a group and its index when its last attempt is over.

    Raises:
        BudgetReached: after what was under way has ended.
    """
    stopped: list[BudgetReached] = []

    async def attempt(index: int, task: Task, number: int) -> Episode | None:
        try:
            return await player.play(step, index, number, task)
        except BudgetReached as reason:
            stopped.append(reason)
            return None

    async def group(index: int, task: Task) -> Group:
        async with asyncio.TaskGroup() as attempting:
            playing = [attempting.create_task(attempt(index, task, number)) for number in range(attempts)]
        episodes = [episode for one in playing if (episode := one.result()) is not None]
        whole = Group(task, tuple(episodes))
        if len(episodes) == attempts:
            complete(index, whole)
        return whole

    async with asyncio.TaskGroup() as everything:
        groups = [everything.create_task(group(index, task)) for index, task in enumerate(tasks)]
    if stopped:
        raise stopped[0]
    return [one.result() for one in groups]
