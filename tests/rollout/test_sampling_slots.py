"""Who is served first while fewer replies may be drawn at once than attempts wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kernelrl_core.monitoring.timeline import Timeline
from kernelrl_core.rollout.sampling_slots import SamplingSlots
from kernelrl_core.types import SampleId


def served(slots: SamplingSlots, waiting: Sequence[SampleId]) -> list[SampleId]:
    """The order in which samples get the only place, when all of them have waited for it."""
    order: list[SampleId] = []

    async def draw(sample: SampleId) -> None:
        async with slots.hold(sample):
            order.append(sample)

    async def play() -> None:
        async with asyncio.TaskGroup() as everything, slots.hold(SampleId(0, 9, 9, 0)):
            for sample in waiting:
                everything.create_task(draw(sample))
            await asyncio.sleep(0)

    asyncio.run(play())
    return order


def test_attempts_with_more_turns_before_them_go_first() -> None:
    samples = [SampleId(0, 0, 0, 2), SampleId(0, 0, 1, 0), SampleId(0, 1, 0, 1)]
    assert served(SamplingSlots(1, 4, Timeline()), samples) == [samples[1], samples[2], samples[0]]


def test_attempts_that_were_slow_so_far_go_first() -> None:
    """Mean of the step 40 s; what is known of an attempt is drawn to its task, and that to the step."""
    slots = SamplingSlots(1, 2, Timeline())
    slots.observe(SampleId(0, 0, 0, 0), 10.0)
    slots.observe(SampleId(0, 1, 0, 0), 70.0)
    fast, slow = SampleId(0, 0, 0, 1), SampleId(0, 1, 0, 1)
    assert served(slots, [fast, slow]) == [slow, fast]


def test_a_reply_that_takes_long_already_tells_of_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of both tasks took 10 s; a reply for task 1 is being drawn for 100 s, so (4 * 10 + 10 + 100) / 6 = 25 s."""
    now = 0.0
    monkeypatch.setattr("kernelrl_core.rollout.sampling_slots.time.monotonic", lambda: now)
    slots = SamplingSlots(2, 2, Timeline())
    for task in (0, 1):
        slots.observe(SampleId(0, task, 0, 0), 10.0)
    order: list[SampleId] = []

    async def draw(sample: SampleId) -> None:
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
                everything.create_task(draw(sample))
            await asyncio.sleep(0)

    asyncio.run(play())
    assert [sample.task_index for sample in order] == [1, 0]


def test_an_earlier_step_goes_before_a_later_one() -> None:
    slots = SamplingSlots(1, 2, Timeline())
    later, now = SampleId(1, 0, 0, 0), SampleId(0, 0, 0, 1)
    assert served(slots, [later, now]) == [now, later]


def test_a_sample_that_is_given_up_leaves_its_place() -> None:
    slots = SamplingSlots(1, 1, Timeline())

    async def play() -> None:
        async def draw(sample: SampleId) -> None:
            async with slots.hold(sample):
                await asyncio.sleep(60)

        first, second = (asyncio.create_task(draw(SampleId(0, 0, attempt, 0))) for attempt in range(2))
        await asyncio.sleep(0)
        second.cancel()
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        async with asyncio.timeout(1), slots.hold(SampleId(0, 0, 2, 0)):
            pass

    asyncio.run(play())


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_training_and_held_out_evaluation_may_wait_for_the_same_sample_id(capacity: int) -> None:
    slots = SamplingSlots(capacity, 1, Timeline())
    drawn = 0

    async def draw(sample: SampleId) -> None:
        nonlocal drawn
        async with slots.hold(sample):
            await asyncio.sleep(0.001)
            drawn += 1

    async def play() -> None:
        async with asyncio.timeout(5), asyncio.TaskGroup() as everything:
            for _purpose in ("train", "eval"):
                for attempt in range(4):
                    everything.create_task(draw(SampleId(1, 0, attempt, 0)))

    asyncio.run(play())
    assert drawn == 8
