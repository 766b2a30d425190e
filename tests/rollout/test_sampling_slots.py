"""Order in which waiting episodes get sampling slots."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kernelrl_core.monitoring.timeline import Timeline
from kernelrl_core.rollout.sampling_slots import SamplingSlots
from kernelrl_core.types import SampleId
from kernelrl_testing.waiting import DEADLINE_S, takes_async


def served(slots: SamplingSlots, waiting: Sequence[SampleId]) -> list[SampleId]:
    """The order in which waiting samples get the only slot."""
    order: list[SampleId] = []

    async def hold(sample: SampleId) -> None:
        async with slots.hold(sample):
            order.append(sample)

    async def play() -> None:
        async with asyncio.TaskGroup() as everything, slots.hold(SampleId(0, 9, 9, 0)):
            for sample in waiting:
                everything.create_task(hold(sample))
            await takes_async(0)

    asyncio.run(play())
    return order


def test_episodes_with_more_remaining_turns_are_first() -> None:
    samples = [SampleId(0, 0, 0, 2), SampleId(0, 0, 1, 0), SampleId(0, 1, 0, 1)]
    assert served(SamplingSlots(1, 4, Timeline()), samples) == [samples[1], samples[2], samples[0]]


def test_slow_episodes_are_first() -> None:
    """The mean of the run is 40 s. The estimate of an episode is shrunk to its task's mean, and that to the run's."""
    slots = SamplingSlots(1, 2, Timeline())
    slots.observe(SampleId(0, 0, 0, 0), 10.0)
    slots.observe(SampleId(0, 1, 0, 0), 70.0)
    fast, slow = SampleId(0, 0, 0, 1), SampleId(0, 1, 0, 1)
    assert served(slots, [fast, slow]) == [slow, fast]


def test_unfinished_long_reply_raises_the_estimate_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of both tasks took 10 s; a reply for task 1 has been sampled for 100 s: (4 * 10 + 10 + 100) / 6 = 25 s."""
    now = 0.0
    monkeypatch.setattr("kernelrl_core.rollout.sampling_slots.time.monotonic", lambda: now)
    slots = SamplingSlots(2, 2, Timeline())
    for task in (0, 1):
        slots.observe(SampleId(0, task, 0, 0), 10.0)
    order: list[SampleId] = []

    async def hold(sample: SampleId) -> None:
        async with slots.hold(sample):
            order.append(sample)

    async def play() -> None:
        nonlocal now
        async with (
            asyncio.TaskGroup() as everything,
            slots.hold(SampleId(0, 1, 2, 0)),
            slots.hold(SampleId(0, 0, 2, 0)),
        ):
            now = 100.0
            for sample in (SampleId(0, 0, 1, 0), SampleId(0, 1, 1, 0)):
                everything.create_task(hold(sample))
            await takes_async(0)

    asyncio.run(play())
    assert [sample.task_index for sample in order] == [1, 0]


def test_earlier_step_is_before_a_later_one() -> None:
    slots = SamplingSlots(1, 2, Timeline())
    later, now = SampleId(1, 0, 0, 0), SampleId(0, 0, 0, 1)
    assert served(slots, [later, now]) == [now, later]


def test_cancelled_sample_frees_its_slot() -> None:
    slots = SamplingSlots(1, 1, Timeline())

    async def play() -> None:
        async def hold(sample: SampleId) -> None:
            async with slots.hold(sample):
                await takes_async(60)

        first, second = (asyncio.create_task(hold(SampleId(0, 0, attempt, 0))) for attempt in range(2))
        await takes_async(0)
        second.cancel()
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        async with asyncio.timeout(DEADLINE_S), slots.hold(SampleId(0, 0, 2, 0)):
            pass

    asyncio.run(play())


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_training_and_held_out_evaluation_may_wait_with_equal_sample_ids(capacity: int) -> None:
    slots = SamplingSlots(capacity, 1, Timeline())
    n_sampled = 0

    async def hold(sample: SampleId) -> None:
        nonlocal n_sampled
        async with slots.hold(sample):
            await takes_async(0.001)
            n_sampled += 1

    async def play() -> None:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as everything:
            for _purpose in ("train", "eval"):
                for attempt in range(4):
                    everything.create_task(hold(SampleId(1, 0, attempt, 0)))

    asyncio.run(play())
    assert n_sampled == 8
