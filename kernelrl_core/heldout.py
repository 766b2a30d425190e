"""Playing a split with a policy as it is, without learning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kernelrl_core.episodes import Player
from kernelrl_core.errors import UsageError
from kernelrl_core.kinds import TaskSource
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.session import Session
from kernelrl_core.values import Group, SampleId, Task, Turn

__all__ = ["eval_tasks", "play_groups", "play_split"]


def eval_tasks(source: TaskSource, settings: EvalSettings) -> list[Task]:
    """The tasks that are evaluated.

    Raises:
        UsageError: the split is unknown or empty.
    """
    tasks = list(source.tasks(settings.split))[: settings.max_tasks]
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
) -> list[Group]:
    """All attempts at all tasks of a split, at once, after `update` steps of training."""
    temperature = session.recipe.sampling.temperature if settings.temperature is None else settings.temperature
    player = Player(session.recipe, session.policy, session.environment, "eval", temperature, finished, record)
    return await play_groups(player, update, eval_tasks(session.environment.tasks, settings), settings.samples)


async def play_groups(player: Player, step: int, tasks: Sequence[Task], attempts: int) -> list[Group]:
    """All attempts at all tasks, at once: whoever is sampled is judged while the others are still being sampled."""
    async with asyncio.TaskGroup() as everything:
        playing = [
            [everything.create_task(player.play(step, index, attempt, task)) for attempt in range(attempts)]
            for index, task in enumerate(tasks)
        ]
    return [Group(task, tuple(episode.result() for episode in row)) for task, row in zip(tasks, playing, strict=True)]
