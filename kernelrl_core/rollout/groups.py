"""Rollouts: all episodes of a step or of a split, concurrently, as complete groups.

    async with Rollout(...) as rollout:
        async for group in rollout:
            ...

`RolloutQueue` holds the rollouts of the current step and of the steps that are sampled ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal

from kernelrl_core.errors import KernelRLError
from kernelrl_core.monitoring.costs import BudgetReached
from kernelrl_core.rollout.episode import EpisodeId, EpisodeRunner, Recorder, run_episode
from kernelrl_core.rollout.session import Session
from kernelrl_core.types import Episode, Group, SampleId, Task, Turn

__all__ = ["Rollout", "RolloutQueue", "session_rollout"]

Order = Literal["canonical", "completion"]


class Rollout:
    """Groups of episodes that are being sampled and evaluated.

    Entering starts every episode. Iterating gives complete groups in the order asked for. A failure of any episode
    cancels the others and is raised by the next iteration. Leaving cancels and awaits what is left; turns that are
    recorded stay recorded.

    Args:
        run: runs one episode of a task: (index of the task, number of the episode).
    """

    def __init__(
        self, tasks: Sequence[Task], episodes: int, run: Callable[[int, int], Awaitable[Episode]], order: Order
    ) -> None:
        self.tasks, self.episodes = tasks, episodes
        self._run, self._order = run, order
        self._complete: asyncio.Queue[tuple[int, Group] | None] = asyncio.Queue()
        self._work: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Rollout:
        self._work = asyncio.create_task(self._run_all())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    async def __aiter__(self) -> AsyncIterator[Group]:
        """
        Raises:
            BudgetReached: after the turns under way have ended.
            BaseExceptionGroup: whatever else ended an episode.
        """
        early: dict[int, Group] = {}
        following = 0
        while (item := await self._complete.get()) is not None:
            index, group = item
            early[index if self._order == "canonical" else following] = group
            while following in early:
                yield early.pop(following)
                following += 1
        assert self._work is not None, "iterated inside `async with`"
        await self._work

    async def _run_all(self) -> None:
        stopped: list[BudgetReached] = []

        async def episode(index: int, number: int) -> Episode | None:
            try:
                return await self._run(index, number)
            except BudgetReached as reason:
                stopped.append(reason)  # the others finish the turns that are under way
                return None

        async def group(index: int, task: Task) -> None:
            async with asyncio.TaskGroup() as running:
                tasks = [running.create_task(episode(index, number)) for number in range(self.episodes)]
            if any(one.cancelled() for one in tasks):  # by a component: a cancelled rollout does not come here
                raise KernelRLError(f"an episode of task {task.id} was cancelled by a component")
            episodes = [one for task_ in tasks if (one := task_.result()) is not None]
            if len(episodes) == self.episodes:
                self._complete.put_nowait((index, Group(task, tuple(episodes))))

        try:
            async with asyncio.TaskGroup() as groups:
                for index, task in enumerate(self.tasks):
                    groups.create_task(group(index, task))
            if stopped:
                raise stopped[0]
        finally:
            self._complete.put_nowait(None)


def session_rollout(
    session: Session,
    tasks: Sequence[Task],
    episodes: int,
    recorder: Recorder,
    *,
    purpose: Literal["train", "eval"],
    step: int,
    finished: Mapping[SampleId, Turn],
    order: Order = "canonical",
) -> Rollout:
    """The rollout of some tasks with a session's policy.

    Args:
        step: step of training, or updates before a held-out evaluation.
        finished: turns of an interrupted run; they are neither sampled nor evaluated again.
    """

    async def run(index: int, number: int) -> Episode:
        place = EpisodeId(purpose, step, index, number)
        turns: list[Turn] = []
        while (turn := finished.get(place.turn(len(turns)))) is not None:
            turns.append(turn)
        examples = await session.environment.examples(tasks[index])
        runner = EpisodeRunner(session.environment, tasks[index], place, session.policy, examples=examples, turns=turns)
        return await run_episode(runner, session.sampler, recorder)

    return Rollout(tasks, episodes, run, order)


class RolloutQueue:
    """Rollouts of several steps that are started: the current one, and those sampled ahead of it.

    Args:
        make: the rollout of a step, not entered.
        n_steps: steps of the run; later ones are never started.
    """

    def __init__(self, make: Callable[[int], Rollout], n_steps: int) -> None:
        self._make, self._n_steps = make, n_steps
        self._started: dict[int, Rollout] = {}

    async def __aenter__(self) -> RolloutQueue:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(rollout.__aexit__(None, None, None) for rollout in self._started.values()))

    def tasks(self, step: int) -> Sequence[Task]:
        """The tasks of a step that is started."""
        return self._started[step].tasks

    async def start(self, first: int, last: int | None = None) -> None:
        """Start the steps from `first` to `last`, both included, unless they are started already."""
        for step in range(first, min(first if last is None else last, self._n_steps - 1) + 1):
            if step not in self._started:
                self._started[step] = await self._make(step).__aenter__()

    async def groups(self, step: int) -> AsyncIterator[Group]:
        """Complete groups of a step; starts it unless it is started. Raises as `Rollout`."""
        await self.start(step)
        async for group in self._started[step]:
            yield group
        await self._started.pop(step).__aexit__(None, None, None)
