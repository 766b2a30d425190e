"""Rollouts: order of groups, failing episodes, cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from kernelrl_core.errors import KernelRLError
from kernelrl_core.monitoring.costs import BudgetReached
from kernelrl_core.plugins.boundary import first_error
from kernelrl_core.rollout.groups import Rollout, RolloutQueue
from kernelrl_core.types import Episode, Group, Outcome, SampleId, Task
from kernelrl_testing.values import make_turn
from kernelrl_testing.waiting import DEADLINE_S, takes_async, wait_until_async

TASKS = [Task(f"t{i}", "") for i in range(3)]
Place = tuple[int, int, int]
"""Step, task and episode."""


class Episodes:
    """Runs episodes and stores which were started, ended and cancelled."""

    def __init__(self, run: Callable[[Place], Awaitable[None]] | None = None) -> None:
        self.started: list[Place] = []
        self.ended: list[Place] = []
        self.cancelled: list[Place] = []
        self._run = run

    def rollout(self, step: int = 0, order: Any = "canonical") -> Rollout:
        async def episode(index: int, number: int) -> Episode:
            place = (step, index, number)
            self.started.append(place)
            try:
                await takes_async(0)
                if self._run is not None:
                    await self._run(place)
            except asyncio.CancelledError:
                self.cancelled.append(place)
                raise
            self.ended.append(place)
            return Episode((make_turn(Outcome.CORRECT, id=SampleId(step, index, number, 0)),))

        return Rollout(TASKS, 2, episode, order)


def slow(seconds: dict[int, float]) -> Callable[[Place], Awaitable[None]]:
    """Duration of the episodes of each task, in seconds."""

    async def run(place: Place) -> None:
        await takes_async(seconds.get(place[1], 0.0))

    return run


def tasks_of(groups: Sequence[Group]) -> list[str]:
    return [group.task.id for group in groups]


async def groups_of(rollout: Rollout) -> list[Group]:
    async with rollout:
        return [group async for group in rollout]


def play(scene: Coroutine[Any, Any, Any]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(DEADLINE_S):
            return await scene

    return asyncio.run(limited())


# --- Rollout --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "expected"), [("canonical", ["t0", "t1", "t2"]), ("completion", ["t1", "t2", "t0"])])
def test_groups_are_yielded_in_the_requested_order(order: str, expected: list[str]) -> None:
    episodes = Episodes(slow({0: 0.1, 1: 0.0, 2: 0.05}))
    assert tasks_of(play(groups_of(episodes.rollout(order=order)))) == expected


def test_group_is_yielded_when_all_groups_before_it_are_complete() -> None:
    episodes = Episodes(slow({2: 60}))

    async def scene() -> list[str]:
        async with episodes.rollout() as rollout:
            found = []
            async for group in rollout:
                found.append(group.task.id)
                if len(found) == 2:
                    break
            return found

    assert play(scene()) == ["t0", "t1"]
    assert sorted(episodes.cancelled) == [(0, 2, 0), (0, 2, 1)]


def test_episodes_of_a_group_are_in_order() -> None:
    async def run(place: Place) -> None:
        await takes_async(0.02 * (1 - place[2]))

    groups = play(groups_of(Episodes(run).rollout()))
    assert [[episode.turns[0].id.attempt for episode in group.episodes] for group in groups] == [[0, 1]] * 3


def test_every_episode_runs_once_and_all_run_concurrently() -> None:
    everyone = asyncio.Barrier(6)

    async def run(place: Place) -> None:
        await everyone.wait()

    episodes = Episodes(run)
    play(groups_of(episodes.rollout()))
    assert sorted(episodes.started) == sorted(episodes.ended) == [(0, i, n) for i in range(3) for n in range(2)]


def test_a_rollout_that_is_not_entered_runs_nothing() -> None:
    episodes = Episodes()

    async def scene() -> None:
        episodes.rollout()
        await takes_async(0.01)

    play(scene())
    assert episodes.started == []


def test_error_of_an_episode_cancels_the_others_and_is_raised() -> None:
    async def run(place: Place) -> None:
        if place == (0, 1, 0):
            raise KernelRLError("planted")
        if place[1] > 0:
            await takes_async(60)

    episodes = Episodes(run)
    seen: list[str] = []

    async def scene() -> None:
        async with episodes.rollout() as rollout:
            async for group in rollout:
                seen.append(group.task.id)

    with pytest.raises(BaseExceptionGroup) as caught:
        play(scene())
    assert str(first_error(caught.value)) == "planted"
    assert seen == ["t0"]
    assert sorted(episodes.cancelled) == [(0, 1, 1), (0, 2, 0), (0, 2, 1)]


def test_episode_cancelled_by_a_component_is_an_error() -> None:
    """The group is not silently missing."""

    async def run(place: Place) -> None:
        if place == (0, 1, 0):
            raise asyncio.CancelledError

    with pytest.raises(BaseExceptionGroup) as caught:
        play(groups_of(Episodes(run).rollout()))
    assert str(first_error(caught.value)) == "an episode of task t1 was cancelled by a component"


def test_spent_budget_is_raised_after_the_other_episodes_end() -> None:
    async def run(place: Place) -> None:
        if place == (0, 0, 0):
            raise BudgetReached("spent")
        await takes_async(0.01)

    episodes = Episodes(run)
    seen: list[str] = []

    async def scene() -> None:
        async with episodes.rollout(order="completion") as rollout:
            async for group in rollout:
                seen.append(group.task.id)

    with pytest.raises(BudgetReached, match=r"^spent$"):
        play(scene())
    assert len(episodes.ended) == 5
    assert episodes.cancelled == []
    assert sorted(seen) == ["t1", "t2"]  # the group of the episode that stopped is incomplete


def test_cancelling_a_rollout_cancels_and_awaits_all_episodes() -> None:
    cleaned: list[Place] = []

    async def run(place: Place) -> None:
        try:
            await takes_async(60)
        finally:
            await takes_async(0.01)  # cleaning up takes a moment
            cleaned.append(place)

    episodes = Episodes(run)

    async def scene() -> None:
        before = asyncio.all_tasks()
        work = asyncio.create_task(groups_of(episodes.rollout()))
        await wait_until_async(lambda: len(episodes.started) == 6)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert work.cancelled()
        assert len(cleaned) == len(episodes.cancelled) == 6
        assert asyncio.all_tasks() == before

    play(scene())


def test_error_in_the_consumer_cancels_all_episodes() -> None:
    episodes = Episodes(slow({1: 60, 2: 60}))

    async def scene() -> None:
        async with episodes.rollout() as rollout:
            async for _ in rollout:
                raise ValueError("the consumer failed")

    with pytest.raises(ValueError, match="the consumer failed"):
        play(scene())
    assert sorted(episodes.cancelled) == [(0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1)]


# --- RolloutQueue ---------------------------------------------------------------------------------------------------


async def collect(groups: AsyncIterator[Group]) -> list[str]:
    return [group.task.id async for group in groups]


def test_rollout_of_a_step_is_created_once() -> None:
    made: list[int] = []
    episodes = Episodes()

    def make(step: int) -> Rollout:
        made.append(step)
        return episodes.rollout(step)

    async def scene() -> None:
        async with RolloutQueue(make, 3, staleness=1, fills_slots=True) as queue:
            for step in range(3):
                await queue.start(step)
                await queue.start(step)
                assert list(queue.tasks(step)) == TASKS
                assert await collect(queue.groups(step)) == ["t0", "t1", "t2"]

    play(scene())
    assert made == [0, 1, 2]
    assert len(episodes.started) == len(set(episodes.started)) == 3 * 6


def test_no_step_after_the_last_is_started() -> None:
    episodes = Episodes()

    async def scene() -> None:
        async with RolloutQueue(episodes.rollout, 2, staleness=5, fills_slots=True) as queue:
            await queue.start(0)
            await collect(queue.groups(0))
            await collect(queue.groups(1))

    play(scene())
    assert {step for step, _, _ in episodes.started} == {0, 1}


def started_steps(act: Callable[[RolloutQueue], Awaitable[None]], **options: Any) -> list[int]:
    made: list[int] = []

    def make(step: int) -> Rollout:
        made.append(step)
        return Episodes().rollout(step)

    async def scene() -> None:
        async with RolloutQueue(make, 9, **options) as queue:
            await act(queue)

    play(scene())
    return made


def test_steps_ahead_start_with_the_step_only_if_they_fill_free_slots() -> None:
    assert started_steps(lambda queue: queue.start(0), staleness=2) == [0]
    assert started_steps(lambda queue: queue.start(0), staleness=2, fills_slots=True) == [0, 1, 2]


def test_as_many_steps_as_the_staleness_are_started_ahead() -> None:
    assert started_steps(lambda queue: queue.start_ahead(0), staleness=2) == [1, 2]
    assert started_steps(lambda queue: queue.start_ahead(0)) == []


def test_the_next_step_starts_after_the_update_without_staleness() -> None:
    assert started_steps(lambda queue: queue.start_next(0)) == [1]


@pytest.mark.parametrize("name", ["start_ahead", "start_next"])
def test_no_step_starts_ahead_in_a_run_that_stops(name: str) -> None:
    assert started_steps(lambda queue: getattr(queue, name)(0), staleness=2, stops=lambda: True) == []


def test_groups_starts_a_step_that_is_not_started() -> None:
    episodes = Episodes()

    async def scene() -> list[str]:
        async with RolloutQueue(episodes.rollout, 1) as queue:
            return await collect(queue.groups(0))

    assert play(scene()) == ["t0", "t1", "t2"]


def test_error_of_a_step_ahead_is_raised_by_its_own_groups() -> None:
    """The update and the current step finish first."""
    failed = asyncio.Event()

    async def run(place: Place) -> None:
        if place == (1, 0, 0):
            failed.set()
            raise KernelRLError("planted")
        if place[0] == 1:
            await takes_async(60)

    episodes = Episodes(run)
    done: list[str] = []

    async def scene() -> None:
        async with RolloutQueue(episodes.rollout, 3, staleness=1, fills_slots=True) as queue:
            await queue.start(0)
            await collect(queue.groups(0))
            await failed.wait()  # the update
            await takes_async(0.01)
            done.append("update")
            await collect(queue.groups(1))

    with pytest.raises(BaseExceptionGroup) as caught:
        play(scene())
    assert str(first_error(caught.value)) == "planted"
    assert done == ["update"]
    assert len(episodes.cancelled) == 5


def test_leaving_the_queue_cancels_all_started_steps() -> None:
    async def run(place: Place) -> None:
        await takes_async(60)

    episodes = Episodes(run)

    async def scene() -> None:
        async with RolloutQueue(episodes.rollout, 3, staleness=1, fills_slots=True) as queue:
            await queue.start(0)
            await wait_until_async(lambda: len(episodes.started) == 12)

    play(scene())
    assert sorted(episodes.cancelled) == sorted(episodes.started)
    assert len(episodes.started) == 12


def test_cancelling_the_consumer_cancels_all_started_steps() -> None:
    episodes = Episodes(slow({0: 60, 1: 60, 2: 60}))

    async def consume() -> None:
        async with RolloutQueue(episodes.rollout, 3, staleness=1, fills_slots=True) as queue:
            await queue.start(0)
            await collect(queue.groups(0))

    async def scene() -> None:
        work = asyncio.create_task(consume())
        await wait_until_async(lambda: len(episodes.started) == 12)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        assert work.cancelled()

    play(scene())
    assert sorted(episodes.cancelled) == sorted(episodes.started)
