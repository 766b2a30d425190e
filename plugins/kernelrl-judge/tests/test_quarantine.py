"""Probes and quarantine of a GPU that fails."""

from __future__ import annotations

import asyncio
import logging

import pytest
from lane_machines import Machine, fail, raising, request, run, soon, waiting, well

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite
from kernelrl_core.api.tasks import Outcome
from kernelrl_judge.client import lanes as module
from kernelrl_judge.client.lanes import Alone, Lanes
from kernelrl_judge.client.worker import JudgeDied
from kernelrl_judge.device.faults import DeviceFault, DeviceFull


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 0.05)


def test_a_failed_gpu_gets_no_candidate_until_it_passes_a_probe() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", each=2)
        machine.may_reply.clear()
        await fail(lanes, machine, "a")
        after = asyncio.create_task(lanes.evaluate(request("after"), ""))
        await soon()
        assert machine.probes == {"a": 1}
        assert machine.evaluated["a"] == ["fault"]
        machine.may_reply.set()
        assert (await after).outcome is Outcome.CORRECT

    run(test)


def test_judges_whose_contexts_may_be_corrupt_are_replaced() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", each=3)
        await fail(lanes, machine, "a")
        await lanes.evaluate(request("x"), "")
        assert [judge.n_ends for judge in machine.judges] == [1, 1, 1]

    run(test)


def test_the_death_of_a_judge_leads_to_a_probe() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a")
        machine.work["killer"] = raising(JudgeDied("status -9"))
        with pytest.raises(JudgeDied):
            await lanes.evaluate(request("killer"), "")
        await lanes.evaluate(request("x"), "")
        assert machine.probes == {"a": 1}

    run(test)


def test_waiting_candidates_get_lanes_of_a_working_gpu() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b")
        machine.unwell["a"] = "no reply"
        await fail(lanes, machine, "a")
        machine.work["x"] = waiting(done := asyncio.Event())
        tasks = [asyncio.create_task(lanes.evaluate(request("x"), "")) for _ in range(3)]
        await soon()
        assert machine.n_running == {"a": 0, "b": 1}
        done.set()
        await asyncio.gather(*tasks)
        assert machine.evaluated == {"a": ["fault"], "b": ["x"] * 3}
        await lanes.aclose()

    run(test)


def test_a_gpu_is_used_again_after_a_later_probe_passes(short_pauses: None, caplog: pytest.LogCaptureFixture) -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b")
        machine.unwell["a"], machine.heals_at["a"] = "no reply", 3
        await fail(lanes, machine, "a")
        await well(lanes)
        assert machine.probes["a"] == 3
        await lanes.evaluate(request("x"), "")
        assert machine.evaluated["a"] == ["fault", "x"]

    with caplog.at_level(logging.WARNING):
        run(test)
    messages = [record.getMessage() for record in caplog.records]
    assert "GPU a is in quarantine" in messages[0]
    assert "no reply" in messages[0]
    assert messages[-1] == "GPU a passes its probe and is used again"


def test_pauses_between_probes_grow_to_a_quarter_of_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(machine: Machine) -> None:
        pauses: list[float] = []
        sleep = asyncio.sleep  # noqa: TID251  # replaced below

        async def passing(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 6:
                machine.unwell.clear()
            await sleep(0)

        lanes = machine.lanes("a")
        machine.unwell["a"] = "no reply"
        monkeypatch.setattr(asyncio, "sleep", passing)
        await fail(lanes, machine, "a")
        await well(lanes)
        assert pauses == [60, 120, 240, 480, 900, 900]

    run(test)


def test_a_gpu_that_fails_three_tasks_in_a_row_is_in_quarantine_although_its_probe_passes() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a")
        for task in ("1", "2", "3"):
            await fail(lanes, machine, "a", task)
        with pytest.raises(InfrastructureError, match="Xid 79"):
            await lanes.evaluate(request("x"), "")
        assert machine.probes == {"a": 3}
        await lanes.aclose()

    run(test)


def test_a_success_between_failures_prevents_the_quarantine() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a")
        for task in ("1", "2", "3", "4"):
            await fail(lanes, machine, "a", task)
            await lanes.evaluate(request("x"), "")

    run(test)


def test_repeated_failures_of_one_task_do_not_lead_to_quarantine() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a")
        for _ in range(9):
            await fail(lanes, machine, "a", "too large")
        await lanes.evaluate(request("x"), "")

    run(test)


def test_a_gpu_that_fails_again_after_its_quarantine_returns_to_it_for_longer(short_pauses: None) -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a")
        for task in ("1", "2", "3"):
            await fail(lanes, machine, "a", task)
        await well(lanes)
        await fail(lanes, machine, "a")
        with pytest.raises(InfrastructureError, match="quarantine"):
            await lanes.evaluate(request("x"), "")
        await well(lanes)
        await lanes.evaluate(request("x"), "")
        assert lanes._devices[0].pause_s == module._FIRST_PAUSE_S

    run(test)


def test_with_every_gpu_in_quarantine_all_candidates_fail_with_the_reasons_and_a_fix() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b")
        machine.unwell = {"a": "no reply", "b": "wrong product"}
        machine.work["fault"] = raising(DeviceFault("Xid 79"))
        machine.may_reply.clear()
        tasks = [asyncio.create_task(lanes.evaluate(request("fault"), "")) for _ in range(2)]
        tasks.append(asyncio.create_task(lanes.evaluate(request("x"), "")))
        tasks.append(asyncio.create_task(lanes.evaluate(request("x"), "", alone=Alone.ON_MACHINE)))
        await soon()
        machine.may_reply.set()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, DeviceFault) for error in errors[:2])
        for error in errors[2:]:
            assert isinstance(error, InfrastructureError)
            assert error.message == "every GPU is in quarantine (a: no reply; b: wrong product)"
            assert "nvidia-smi" in error.fix
            assert "CUDA_VISIBLE_DEVICES" in error.fix
        await lanes.aclose()

    run(test)


def test_a_judge_that_dies_alone_on_a_gpu_that_fails_its_probe_is_a_device_fault() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a")
        machine.work["x"] = raising(JudgeDied("status -9"))
        with pytest.raises(JudgeDied):
            await lanes.evaluate(request("x"), "", alone=Alone.ON_MACHINE)
        machine.unwell["a"] = "no reply"
        with pytest.raises(DeviceFault, match="no reply"):
            await lanes.evaluate(request("x"), "", alone=Alone.ON_MACHINE)
        await lanes.aclose()

    run(test)


def test_a_gpu_that_is_gone_is_in_quarantine_while_the_other_works(caplog: pytest.LogCaptureFixture) -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b")
        machine.work["gone"] = raising(MissingPrerequisite("torch finds no GPU", fix="look"), "a")
        machine.unwell["a"] = "torch finds no GPU"
        with pytest.raises(DeviceFault, match="finds no GPU"):
            await lanes.evaluate(request("gone"), "")
        await asyncio.gather(*(lanes.evaluate(request("gone"), "") for _ in range(3)))
        assert machine.evaluated == {"a": ["gone"], "b": ["gone"] * 3}
        await lanes.aclose()

    run(test)
    assert len(caplog.records) == 1


def test_a_gpu_that_torch_never_finds_is_missing() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b")
        machine.work["x"] = raising(MissingPrerequisite("torch finds no GPU", fix="look"))
        machine.unwell = dict.fromkeys("ab", "torch finds no GPU")
        tasks = [asyncio.create_task(lanes.evaluate(request("x"), "")) for _ in range(2)]
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert any(isinstance(error, MissingPrerequisite) for error in errors)
        await lanes.aclose()

    run(test)


def test_one_of_several_gpus_whose_memory_others_hold_is_left_to_them(
    short_pauses: None, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b", each=2)
        machine.work["large"] = raising(DeviceFull("no memory left"), "a")
        machine.used["a"] = 0.9
        for _ in range(3):
            with pytest.raises(DeviceFull) as full:
                await lanes.evaluate(request("large"), "")
            assert full.value.device == "a"
        await lanes.evaluate(request("large"), "")
        assert machine.evaluated == {"a": ["large"] * 3, "b": ["large"]}
        await lanes._devices[0].settled.wait()
        machine.used["a"] = 0.01
        await well(lanes)
        await lanes.evaluate(request("x"), "")
        assert machine.evaluated["a"][-1] == "x"

    with caplog.at_level(logging.WARNING):
        run(test)
    assert "other programs hold 90% of its memory" in caplog.records[0].getMessage()


def test_a_gpu_whose_memory_only_candidates_use_stays_in_use() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a", "b")
        machine.work["large"] = raising(DeviceFull("no memory left"))
        machine.used = {"a": 0.01, "b": 0.01}
        for _ in range(9):
            with pytest.raises(DeviceFull):
                await lanes.evaluate(request("large"), "")
        examinations = [device.examination for device in lanes._devices if device.examination is not None]
        await asyncio.gather(*examinations)
        assert sum(map(len, machine.evaluated.values())) == 9
        assert not any(device.quarantine for device in lanes._devices)

    run(test)


def test_a_prerequisite_that_is_missing_on_a_working_gpu_stays_missing() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a")
        machine.work["cuda"] = raising(MissingPrerequisite("nvcc is missing", fix="install it"))
        await lanes.evaluate(request("x"), "")
        with pytest.raises(MissingPrerequisite, match="nvcc"):
            await lanes.evaluate(request("cuda"), "")
        await lanes.evaluate(request("x"), "")

    run(test)


def test_a_judge_without_a_gpu_is_never_examined() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes([None], 2, judge=machine.judge)
        machine.work["x"] = raising(JudgeDied("status -9"))
        for alone in Alone:
            with pytest.raises(JudgeDied):
                await lanes.evaluate(request("x"), "", alone=alone)
        await soon()
        assert not machine.probes

    run(test)


def test_closing_ends_a_current_examination() -> None:
    async def test(machine: Machine) -> None:
        lanes = machine.lanes("a")
        machine.may_reply.clear()
        await fail(lanes, machine, "a")
        await soon()
        examination = lanes._devices[0].examination
        assert examination is not None
        await lanes.aclose()
        assert examination.done()

    run(test)
