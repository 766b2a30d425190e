"""A judge that dies under a candidate: its task without it shows whether candidate, task or machine is the cause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import attrs
import pytest
from lane_machines import Machine, raising, request

from kernelrl_core.api.checkers import Evaluation
from kernelrl_core.api.errors import InfrastructureError, UsageError
from kernelrl_core.api.tasks import Outcome
from kernelrl_judge.client.lanes import Lanes
from kernelrl_judge.client.pool import JudgePool
from kernelrl_judge.client.worker import JudgeDied
from kernelrl_judge.device.faults import DeviceFull
from kernelrl_plugin_triton.backend import TritonBackend
from kernelrl_testing.waiting import DEADLINE_S

TASK = request("killer").task_source
EXAMPLE = TritonBackend.facts.example.reference
DIED = JudgeDied("the judge ended with status -9")


def evaluated(machine: Machine, source: str) -> Evaluation:
    """Evaluate a candidate by the judges of a fake machine."""

    async def evaluation() -> Evaluation:
        pool = JudgePool(workers=1)
        pool.on_cpu = Lanes([None], 1, judge=machine.judge)
        interpreted = attrs.evolve(request(source), backend_options={"mode": "interpreter"})
        return await asyncio.wait_for(pool.evaluate(interpreted), DEADLINE_S)

    return asyncio.run(evaluation())


def dying(times: int) -> Callable[..., Coroutine[Any, Any, None]]:
    """Let the judge die a number of times."""
    errors = [DIED] * times

    async def work(gpu: str, slow: Callable[[], None]) -> None:
        if errors:
            raise errors.pop()

    return work


def test_a_candidate_that_ends_every_judge_has_a_runtime_error_and_no_finding() -> None:
    machine = Machine()
    machine.work["killer"] = raising(DIED)
    found = evaluated(machine, "killer")
    assert found.outcome is Outcome.RUNTIME_ERROR
    assert found.findings == ()
    assert "ended twice with it, and does not without it" in found.message
    # The machine may be part of the cause.
    assert not found.final
    assert machine.evaluated[""] == ["killer", "killer", TASK]


def test_a_machine_on_which_every_judge_dies_is_an_infrastructure_error() -> None:
    machine = Machine()
    machine.work["candidate"] = machine.work[TASK] = machine.work[EXAMPLE] = raising(DIED)
    with pytest.raises(InfrastructureError, match="judges fail without any kernel"):
        evaluated(machine, "candidate")
    assert machine.evaluated[""] == ["candidate", "candidate", TASK, EXAMPLE]


def test_a_task_that_ends_every_judge_by_itself_is_an_error_of_the_task() -> None:
    machine = Machine()
    machine.work["candidate"] = machine.work[TASK] = raising(DIED)
    with pytest.raises(UsageError, match="task task: its reference ends the process that runs it") as raised:
        evaluated(machine, "candidate")
    assert str(DIED) in raised.value.message
    assert raised.value.see == "judge"


def test_a_task_that_fills_the_memory_of_the_machine_has_a_fix_for_that() -> None:
    machine = Machine()
    machine.work["candidate"] = machine.work[TASK] = raising(JudgeDied("the judge ended with status -9", killed=True))
    with pytest.raises(UsageError, match="its reference ends the process that runs it") as raised:
        evaluated(machine, "candidate")
    assert "make its inputs smaller" in raised.value.fix


def test_a_task_that_cannot_be_used_is_an_error_of_the_task() -> None:
    machine = Machine()
    machine.work["candidate"] = raising(DIED)
    machine.work[TASK] = raising(UsageError("task task: Model(...) failed"))
    with pytest.raises(UsageError, match=r"Model\(...\) failed"):
        evaluated(machine, "candidate")


def test_a_single_death_has_no_consequence() -> None:
    machine = Machine()
    machine.work["candidate"] = dying(1)
    assert evaluated(machine, "candidate").outcome is Outcome.CORRECT
    assert machine.evaluated[""] == ["candidate", "candidate"]


def test_a_candidate_without_device_memory_for_its_judge_is_evaluated_again_alone() -> None:
    machine = Machine()
    errors = [DeviceFull("no device memory left")]

    async def work(gpu: str, slow: Callable[[], None]) -> None:
        if errors:
            raise errors.pop()

    machine.work["large"] = work
    assert evaluated(machine, "large").outcome is Outcome.CORRECT
    assert machine.evaluated[""] == ["large", "large"]


def test_a_candidate_too_large_for_an_empty_gpu_is_out_of_memory_and_no_gpu_is_suspected() -> None:
    machine = Machine()
    machine.work["large"] = raising(DeviceFull("no device memory left"))
    found = evaluated(machine, "large")
    assert (found.outcome, found.final) == (Outcome.OUT_OF_MEMORY, False)
    assert machine.evaluated[""] == ["large", "large"]
    assert machine.probes[""] == 0


def test_every_further_judge_is_a_fresh_one() -> None:
    machine = Machine()
    machine.work["killer"] = raising(DIED)
    evaluated(machine, "killer")
    assert [judge.n_ends for judge in machine.judges] == [2]
