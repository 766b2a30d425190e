"""The choice of a judge for a candidate."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

import attrs
import pytest
from lane_machines import Machine, fail, request, run, soon, waiting

from kernelrl_judge.client.lanes import Alone, Lanes
from kernelrl_judge.device.faults import DeviceFault
from kernelrl_testing.waiting import takes_async


def test_candidates_spread_over_the_gpus_before_they_share_one() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b", "c", each=2)
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
        lanes = machine.lanes("a", each=3)
        used = set()
        for _ in range(4):
            await lanes.evaluate(request("x"), "")
            used.add(lanes._devices[0].idle[-1])
        assert len(used) == 1

    run(test)


def test_a_candidate_gets_a_judge_of_its_domain_else_one_that_has_not_started() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", each=4)
        users, of_first, of_second, unstarted = machine.judges
        for judge, domain in ((users, ""), (of_first, "first"), (of_second, "second")):
            judge.runs, judge.domain = True, domain
        for domain, wanted in (("", users), ("first", of_first), ("second", of_second), ("third", unstarted)):
            await lanes.evaluate(attrs.evolve(request("x"), domain=domain), "")
            last: object = lanes._devices[0].idle[-1]
            assert last is wanted

    run(test)


def test_idle_judges_of_a_gpu_end_before_a_candidate_is_evaluated_alone() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", each=3)
        await asyncio.gather(*(lanes.evaluate(request(name), "") for name in "xyz"))
        await lanes.evaluate(request("single"), "", alone=Alone.ON_MACHINE)
        assert [judge.n_ends for judge in machine.judges] == [1, 1, 1]
        await lanes.aclose()

    run(test)


def test_a_candidate_alone_waits_for_empty_lanes_and_gets_a_working_gpu() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b", each=2)
        machine.unwell["a"] = "no reply"
        await fail(lanes, machine, "a")
        machine.work["x"] = waiting(x_done := asyncio.Event())
        machine.work["single"] = waiting(single_done := asyncio.Event())
        before = asyncio.create_task(lanes.evaluate(request("x"), ""))
        await soon()
        single = asyncio.create_task(lanes.evaluate(request("single"), "", alone=Alone.ON_MACHINE))
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


@pytest.mark.parametrize("alone", [*Alone])
def test_a_cancelled_candidate_releases_its_lane(alone: Alone) -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", each=2)
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
        await lanes.evaluate(request("y"), "", alone=Alone.ON_MACHINE)
        machine.work["z"] = waiting(done := asyncio.Event())
        tasks = [asyncio.create_task(lanes.evaluate(request("z"), "")) for _ in range(2)]
        await soon()
        assert machine.n_running == {"a": 2}
        done.set()
        await asyncio.gather(*tasks)

    run(test)


def test_a_candidate_that_is_cancelled_with_a_new_lane_releases_the_lane() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a")
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
        lanes = machine.lanes("a", each=2)
        machine.work["x"] = waiting(done := asyncio.Event())
        first = asyncio.create_task(lanes.evaluate(request("x"), ""))
        await soon()
        single = asyncio.create_task(lanes.evaluate(request("single"), "", alone=Alone.ON_MACHINE))
        await soon()
        second = asyncio.create_task(lanes.evaluate(request("second"), ""))
        await soon()
        assert machine.evaluated["a"] == ["x"]
        single.cancel()
        await second
        done.set()
        await first

    run(test)


def test_a_candidate_alone_on_a_gpu_leaves_the_others_to_the_rest() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b", each=2)
        machine.work["x"] = waiting(x_done := asyncio.Event())
        machine.work["single"] = waiting(single_done := asyncio.Event())
        before = [asyncio.create_task(lanes.evaluate(request("x"), "")) for _ in range(2)]
        await soon()
        single = asyncio.create_task(lanes.evaluate(request("single"), "", alone=Alone.ON_DEVICE, avoided="a"))
        after = [asyncio.create_task(lanes.evaluate(request("after"), "")) for _ in range(3)]
        await asyncio.gather(*after)
        assert machine.evaluated == {"a": ["x", *["after"] * 3], "b": ["x"]}
        x_done.set()
        await soon()
        assert machine.n_running == {"a": 0, "b": 1}
        assert machine.evaluated["b"] == ["x", "single"]
        single_done.set()
        await asyncio.gather(*before, single)
        await lanes.aclose()

    run(test)


@pytest.mark.parametrize(("memory_mib", "chosen"), [({"a": 80, "b": 40}, "a"), ({"a": 40, "b": 80}, "b"), ({}, "b")])
def test_a_candidate_that_needs_memory_gets_the_largest_gpu_or_another_one(
    memory_mib: dict[str, int], chosen: str
) -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b", memory_mib=memory_mib)
        await lanes.evaluate(request("large"), "", alone=Alone.ON_DEVICE, avoided="a")
        assert machine.evaluated == {chosen: ["large"]}

    run(test)


def test_a_candidate_that_waits_for_a_gpu_that_fails_gets_another_one() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b")
        fails = asyncio.Event()

        async def fault(gpu: str, slow: Callable[[], None]) -> None:
            await fails.wait()
            raise DeviceFault("Xid 79")

        machine.work["fault"], machine.unwell["a"] = fault, "no reply"
        failing = asyncio.create_task(lanes.evaluate(request("fault"), ""))
        await soon()
        single = asyncio.create_task(lanes.evaluate(request("single"), "", alone=Alone.ON_DEVICE, avoided="b"))
        await soon()
        assert not single.done()
        fails.set()
        with pytest.raises(DeviceFault):
            await failing
        await single
        assert machine.evaluated == {"a": ["fault"], "b": ["single"]}
        await lanes.aclose()

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
        single = asyncio.create_task(lanes.evaluate(request("single"), "", alone=Alone.ON_MACHINE))
        over.set()
        await asyncio.gather(*tasks, single)
        assert machine.evaluated[""] == ["slow"] * 4 + ["single"]
        assert (lanes._devices[0].n_free, lanes._devices[0].n_spare, len(lanes._devices[0].idle)) == (1, 2, 3)

    run(test)
