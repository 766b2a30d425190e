"""A judge that dies under a candidate: whose fault it is, as a control kernel shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import attrs
import pytest
from lane_machines import Machine, raising, request

from kernelrl_core.errors import InfrastructureError
from kernelrl_core.types import Evaluation, Outcome
from kernelrl_judge.client.lanes import Lanes
from kernelrl_judge.client.pool import JudgePool
from kernelrl_judge.client.worker import DeviceFull, JudgeDied
from kernelrl_plugin_triton.backend import TritonBackend

CONTROL = TritonBackend.facts.example.kernel
DIED = JudgeDied("the judge ended with status -9")


def evaluated(machine: Machine, source: str) -> Evaluation:
    """By an evaluator whose judges are those of a machine."""

    async def scene() -> Evaluation:
        pool = JudgePool(workers=1)
        pool.on_cpu = Lanes([None], 1, judge=machine.judge)
        asked = attrs.evolve(request(source), backend_options={"mode": "interpreter"})
        return await asyncio.wait_for(pool.evaluate(asked), 10)

    return asyncio.run(scene())


def dying(times: int) -> Callable[..., Coroutine[Any, Any, None]]:
    left = [DIED] * times

    async def work(gpu: str, slow: Callable[[], None]) -> None:
        if left:
            raise left.pop()

    return work


def test_a_candidate_that_ends_every_judge_has_a_runtime_error_and_no_finding() -> None:
    machine = Machine()
    machine.work["killer"] = raising(DIED)
    found = evaluated(machine, "killer")
    assert found.outcome is Outcome.RUNTIME_ERROR
    assert found.findings == ()
    assert "ended twice" in found.message
    # The machine may have a part in it.
    assert not found.final
    assert machine.judged[""] == ["killer", "killer", CONTROL]


def test_a_machine_on_which_every_judge_dies_is_an_infrastructure_error() -> None:
    machine = Machine()
    machine.work["candidate"] = machine.work[CONTROL] = raising(DIED)
    with pytest.raises(InfrastructureError, match="under any kernel of backend triton"):
        evaluated(machine, "candidate")


def test_a_single_death_has_no_consequence() -> None:
    machine = Machine()
    machine.work["candidate"] = dying(1)
    assert evaluated(machine, "candidate").outcome is Outcome.CORRECT
    assert machine.judged[""] == ["candidate", "candidate"]


def test_a_candidate_without_device_memory_for_its_judge_is_evaluated_again_alone() -> None:
    machine = Machine()
    left = [DeviceFull("no device memory left")]

    async def work(gpu: str, slow: Callable[[], None]) -> None:
        if left:
            raise left.pop()

    machine.work["large"] = work
    assert evaluated(machine, "large").outcome is Outcome.CORRECT
    assert machine.judged[""] == ["large", "large"]


def test_what_does_not_fit_an_empty_gpu_is_out_of_memory_and_blames_no_gpu() -> None:
    machine = Machine()
    machine.work["large"] = raising(DeviceFull("no device memory left"))
    found = evaluated(machine, "large")
    assert (found.outcome, found.final) == (Outcome.OUT_OF_MEMORY, False)
    assert machine.judged[""] == ["large", "large"]
    assert machine.probes[""] == 0


def test_every_further_judge_is_a_fresh_one() -> None:
    machine = Machine()
    machine.work["killer"] = raising(DIED)
    evaluated(machine, "killer")
    assert [judge.n_ends for judge in machine.judges] == [2]
