"""Rollouts: the episodes of a step or a split, run concurrently and returned as complete groups.

    async with Rollout(...) as rollout:
        async for group in rollout:
            ...

`RolloutQueue` holds the rollouts of the current step and of the steps sampled ahead of it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal

from kernelrl_core.environment.retrieval import RetrievedExamples
from kernelrl_core.errors import InfrastructureError, KernelRLError
from kernelrl_core.monitoring.costs import BudgetReached
from kernelrl_core.rollout.episode import EpisodeId, EpisodeRunner, Recorder, lose_episode, run_episode
from kernelrl_core.rollout.session import Session
from kernelrl_core.types import Episode, Group, SampleId, Task, Turn

__all__ = ["Rollout", "RolloutQueue", "session_rollout"]

Order = Literal["canonical", "completion"]


class Rollout:
    """Async context manager and iterator over the groups of some tasks.

    Entering starts all episodes. Iteration yields complete groups. If an episode fails, all others are cancelled and
    the error is raised by the next iteration. Leaving cancels and awaits unfinished episodes; recorded turns stay on
    disk.

    Args:
        episodes: episodes per task.
        run: runs one episode; its arguments are the index of the task and the index of the episode.
        order: `canonical`: groups in the order of `tasks`; `completion`: as they become complete.
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
            BudgetReached: the budget is spent. Raised after the turns in progress have finished.
            BaseExceptionGroup: the other errors that ended episodes.
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
                stopped.append(reason)  # the other episodes finish their current turns
                return None

        async def group(index: int, task: Task) -> None:
            async with asyncio.TaskGroup() as running:
                tasks = [running.create_task(episode(index, number)) for number in range(self.episodes)]
            if any(one.cancelled() for one in tasks):  # by a component; a cancelled rollout does not reach this line
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
    first_index: int = 0,
) -> Rollout:
    """A rollout of `tasks` with the policy of a session, not started.

    Args:
        episodes: episodes per task.
        step: training step, or number of updates before a held-out evaluation.
        finished: turns of an interrupted run. They are not sampled or evaluated again, and their groups see the same
            examples.
        first_index: index of the first task in the step; above 0 for tasks in place of earlier ones.
    """
    environment = session.environment
    retrieved: dict[int, RetrievedExamples] = {}
    retrieving: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def examples_of(index: int) -> RetrievedExamples:
        """The examples of a group, retrieved once for all of its episodes."""
        async with retrieving[index]:
            if index not in retrieved:
                places = (EpisodeId(purpose, step, first_index + index, number) for number in range(episodes))
                first = (finished.get(place.turn(0)) for place in places)
                recorded = next((turn for turn in first if turn is not None and not turn.masked), None)
                retrieved[index] = await environment.examples(tasks[index], recorded)
            return retrieved[index]

    async def run(index: int, number: int) -> Episode:
        place = EpisodeId(purpose, step, first_index + index, number)
        turns: list[Turn] = []
        while (turn := finished.get(place.turn(len(turns)))) is not None:
            turns.append(turn)
        try:
            examples = await examples_of(index)
        except InfrastructureError as error:
            runner = EpisodeRunner(environment, tasks[index], place, session.policy, turns=turns)
            return await lose_episode(runner, error, recorder)
        runner = EpisodeRunner(environment, tasks[index], place, session.policy, examples=examples, turns=turns)
        return await run_episode(runner, session.sampler, recorder)

    return Rollout(tasks, episodes, run, order)


class RolloutQueue:
    """The started rollouts: that of the current step and those of the steps sampled ahead of it.

    Args:
        make: returns the rollout of a step, not started.
        n_steps: number of steps of the run; later steps are never started.
        staleness: number of steps that are sampled ahead of the update of a step.
        fills_slots: replies are limited in number, so the steps ahead start with the step and fill its free slots.
            Otherwise they start when all of its groups are complete.
        stops: whether the current step is the last one that the user waits for, so that none starts ahead of it.
    """

    def __init__(
        self,
        make: Callable[[int], Rollout],
        n_steps: int,
        *,
        staleness: int = 0,
        fills_slots: bool = False,
        stops: Callable[[], bool] = lambda: False,
    ) -> None:
        self._make, self._n_steps = make, n_steps
        self._staleness, self._fills_slots, self._stops = staleness, fills_slots, stops
        self._started: dict[int, Rollout] = {}

    async def __aenter__(self) -> RolloutQueue:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(rollout.__aexit__(None, None, None) for rollout in self._started.values()))

    def tasks(self, step: int) -> Sequence[Task]:
        """The tasks of a started step."""
        return self._started[step].tasks

    async def start(self, step: int) -> None:
        """Start a step that is not started yet; with `fills_slots` also the steps ahead of it."""
        await self._start(step, step)
        if self._fills_slots:
            await self.start_ahead(step)

    async def start_ahead(self, step: int) -> None:
        """Start the steps that are sampled ahead of the update of `step`; none if the run stops after it."""
        if not self._stops():
            await self._start(step + 1, step + self._staleness)

    async def start_next(self, step: int) -> None:
        """Start the step after `step`, whose update is finished; not if the run stops after it."""
        if not self._stops():
            await self._start(step + 1, step + 1)

    async def _start(self, first: int, last: int) -> None:
        for step in range(first, min(last, self._n_steps - 1) + 1):
            if step not in self._started:
                self._started[step] = await self._make(step).__aenter__()

    async def groups(self, step: int) -> AsyncIterator[Group]:
        """Yield the complete groups of a step; start the step if necessary. Raises like iteration of `Rollout`."""
        await self._start(step, step)
        async for group in self._started[step]:
            yield group
        await self._started.pop(step).__aexit__(None, None, None)
