"""Playing a split with a policy as it is, without learning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.kinds import TaskSource
from kernelrl_core.monitoring.costs import BudgetReached
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.rollout.episode import Player
from kernelrl_core.rollout.session import Session
from kernelrl_core.tasks.audits import listed
from kernelrl_core.types import Episode, Group, Prompt, SampleId, Task, Turn

__all__ = ["eval_tasks", "play_groups", "play_split"]


def eval_tasks(source: TaskSource, settings: EvalSettings) -> list[Task]:
    """The tasks that are evaluated.

    Raises:
        UsageError: the split is unknown or empty.
        KernelRLError: the source failed.
    """
    tasks = list(listed(source, settings.split))[: settings.max_tasks]
    if not tasks:
        raise UsageError(f"split {settings.split!r} holds no tasks to evaluate")
    return tasks


async def play_split(
    session: Session,
    settings: EvalSettings,
    *,
    update: int,
    finished: Mapping[SampleId, Turn],
    record: Callable[[Turn], Awaitable[None]],
    beginning: Callable[[SampleId, Prompt], Awaitable[None]] | None = None,
) -> list[Group]:
    """All attempts at all tasks of a split, at once, after `update` steps of training."""
    player = Player(
        session.recipe,
        session.policy,
        session.environment,
        "eval",
        session.recipe.sampling.temperature if settings.temperature is None else settings.temperature,
        finished,
        record,
        beginning,
        timeline=session.timeline,
        slots=session.slots,
    )
    return await play_groups(player, update, eval_tasks(session.environment.tasks, settings), settings.samples)


async def play_groups(
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
