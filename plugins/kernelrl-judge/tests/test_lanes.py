"""The choice of a judge for a candidate."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

import attrs
import pytest
from lane_machines import Machine, fail, request, run, soon, waiting

from kernelrl_judge.client.lanes import Lanes
from kernelrl_testing.waiting import takes_async


def test_candidates_spread_over_the_gpus_before_they_share_one() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a", "b", "c"], 2, judge=machine.judge)
        machine.work["x"] = waiting(done := asyncio.Event())
        tasks = [asyncio.create_task(lanes.evaluate(request("x"), "")) for _ in range(3)]
        await soon()
        assert machine.n_running == {"a": 1, "b": 1, "c": 1}
        tasks += [asyncio.create_task(lanes.evaluate(request("x"), "")) for _ in range(4)]
        await soon()
        assert lanes.size == 6
        assert machine.n_running == {"a": 2, "b": 2, "c": 2}
        done.set()
        await asyncio.gather(*tasks)
        assert sum(map(len, machine.evaluated.values())) == 7

    run(test)


def test_consecutive_candidates_get_the_same_judge() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 3, judge=machine.judge)
        used = set()
        for _ in range(4):
            await lanes.evaluate(request("x"), "")
            used.add(lanes._devices[0].idle[-1])
        assert len(used) == 1

    run(test)


def test_a_candidate_gets_a_judge_of_its_domain_else_one_that_has_not_started() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 4, judge=machine.judge)
        users, of_first, of_second, unstarted = machine.judges
        for judge, domain in ((users, ""), (of_first, "first"), (of_second, "second")):
            judge.runs, judge.domain = True, domain
        for domain, wanted in (("", users), ("first", of_first), ("second", of_second), ("third", unstarted)):
            await lanes.evaluate(attrs.evolve(request("x"), domain=domain), "")
            assert lanes._devices[0].idle[-1] is wanted

    run(test)


def test_idle_judges_of_a_gpu_end_before_a_candidate_is_evaluated_alone() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 3, judge=machine.judge)
        await asyncio.gather(*(lanes.evaluate(request(name), "") for name in "xyz"))
        await lanes.evaluate(request("single"), "", alone=True)
        assert [judge.n_ends for judge in machine.judges] == [1, 1, 1]
        await lanes.aclose()

    run(test)


def test_a_candidate_alone_waits_for_empty_lanes_and_gets_a_working_gpu() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a", "b"], 2, judge=machine.judge)
        machine.unwell["a"] = "no reply"
        await fail(lanes, machine, "a")
        machine.work["x"] = waiting(x_done := asyncio.Event())
        machine.work["single"] = waiting(single_done := asyncio.Event())
        before = asyncio.create_task(lanes.evaluate(request("x"), ""))
        await soon()
        single = asyncio.create_task(lanes.evaluate(request("single"), "", alone=True))
        after = asyncio.create_task(lanes.evaluate(request("after"), ""))
        await soon()
        assert machine.evaluated["b"] == ["x"]
        x_done.set()
        await soon()
        assert machine.evaluated["b"] == ["x", "single"]
        single_done.set()
        await asyncio.gather(before, single, after)
        assert machine.evaluated == {"a": ["fault"], "b": ["x", "single", "after"]}
        await lanes.aclose()

    run(test)


@pytest.mark.parametrize("alone", [False, True])
def test_a_cancelled_candidate_releases_its_lane(alone: bool) -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 2, judge=machine.judge)
        machine.work["x"] = waiting(asyncio.Event())
        evaluate = functools.partial(lanes.evaluate, alone=alone)
        for n_steps in range(6):
            cancelled = [asyncio.create_task(evaluate(request("x"), "")) for _ in range(3)]
            for _ in range(n_steps):
                await takes_async(0)
            for task in cancelled:
                task.cancel()
            assert all(
                isinstance(error, asyncio.CancelledError)
                for error in await asyncio.gather(*cancelled, return_exceptions=True)
            )
        await lanes.evaluate(request("y"), "", alone=True)
        machine.work["z"] = waiting(done := asyncio.Event())
        tasks = [asyncio.create_task(lanes.evaluate(request("z"), "")) for _ in range(2)]
        await soon()
        assert machine.n_running == {"a": 2}
        done.set()
        await asyncio.gather(*tasks)

    run(test)


def test_a_candidate_that_is_cancelled_with_a_new_lane_releases_the_lane() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 1, judge=machine.judge)
        done = asyncio.Event()

        async def end(gpu: str, slow: Callable[[], None]) -> None:
            await done.wait()
            # Called after the lane is assigned to the second candidate, and before that candidate continues.
            asyncio.get_running_loop().call_soon(second.cancel)

        machine.work["x"] = end
        first = asyncio.create_task(lanes.evaluate(request("x"), ""))
        second = asyncio.create_task(lanes.evaluate(request("second"), ""))
        third = asyncio.create_task(lanes.evaluate(request("third"), ""))
        await soon()
        done.set()
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert second.cancelled()
        assert machine.evaluated["a"] == ["x", "third"]

    run(test)


def test_a_cancelled_candidate_that_waits_to_be_alone_blocks_no_other() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 2, judge=machine.judge)
        machine.work["x"] = waiting(done := asyncio.Event())
        first = asyncio.create_task(lanes.evaluate(request("x"), ""))
        await soon()
        single = asyncio.create_task(lanes.evaluate(request("single"), "", alone=True))
        await soon()
        second = asyncio.create_task(lanes.evaluate(request("second"), ""))
        await soon()
        assert machine.evaluated["a"] == ["x"]
        single.cancel()
        await second
        done.set()
        await first

    run(test)


def test_spare_judges_replace_slow_candidates_on_the_cpu_until_none_is_left() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes([None], 1, spare=2, judge=machine.judge)
        over = asyncio.Event()

        async def slowly(gpu: str, slow: Callable[[], None]) -> None:
            slow()
            slow()
            await over.wait()

        machine.work["slow"] = slowly
        tasks = [asyncio.create_task(lanes.evaluate(request("slow"), "")) for _ in range(4)]
        await soon()
        assert machine.n_running == {"": 3}
        single = asyncio.create_task(lanes.evaluate(request("single"), "", alone=True))
        over.set()
        await asyncio.gather(*tasks, single)
        assert machine.evaluated[""] == ["slow"] * 4 + ["single"]
        assert (lanes._devices[0].n_free, lanes._devices[0].n_spare, len(lanes._devices[0].idle)) == (1, 2, 3)

    run(test)
