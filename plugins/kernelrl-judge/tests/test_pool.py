"""The pool of judges: refused requests, cancelled and hanging evaluations, processes that it starts and ends."""

from __future__ import annotations

import asyncio

import attrs
import psutil
import pytest
from shared_evaluations import KERNEL, Evaluations, cpu_request, kernel_with

from kernelrl_core.api.errors import InfrastructureError, UsageError
from kernelrl_core.api.evaluators import Outcome
from kernelrl_judge.client.pool import JudgePool
from kernelrl_testing.waiting import DEADLINE_S, takes_async

ENDLESS_S = 10 * DEADLINE_S
"""Time limit of kernels that hang, so that no evaluation ends because theirs has."""


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("import nothing_of_that_name\n", "nothing_of_that_name"),
        ("class Model: pass\n\ndef get_init_inputs(): return []\n", "get_inputs"),
        ("raise ValueError('no')\n", "ValueError"),
    ],
)
def test_a_task_that_cannot_be_used_is_named_with_its_problem(
    evaluations: Evaluations, reference: str, problem: str
) -> None:
    with pytest.raises(UsageError, match=problem) as raised:
        evaluations.evaluate(KERNEL, reference)
    assert "test/task" in str(raised.value)
    assert evaluations.evaluate(KERNEL).outcome is Outcome.CORRECT


def test_a_request_of_another_version_is_refused(evaluations: Evaluations) -> None:
    request = attrs.evolve(cpu_request(KERNEL), api_version="0.0")
    with pytest.raises(InfrastructureError, match=r"0\.0"):
        evaluations.evaluate_request(request)


def test_a_source_that_does_not_match_its_hash_is_refused(evaluations: Evaluations) -> None:
    request = attrs.evolve(cpu_request(KERNEL), source=KERNEL + "\n# changed")
    with pytest.raises(InfrastructureError, match="hash"):
        evaluations.evaluate_request(request)


def test_each_mode_without_run_times_has_a_reason(evaluations: Evaluations) -> None:
    why_untimed = evaluations.pool.why_untimed
    assert "interpreter" in why_untimed("triton", {"mode": "interpreter"})
    assert "not executed" in why_untimed("cuda", {"mode": "compile"})
    assert why_untimed("cpp", {}) == ""


def test_an_evaluation_after_a_cancelled_one_is_made(evaluations: Evaluations) -> None:
    async def outcome_after_cancelling() -> Outcome:
        source = kernel_with("while True: pass")
        endless = asyncio.create_task(evaluations.pool.evaluate(cpu_request(source, timeout_s=ENDLESS_S)))
        await takes_async(1.0)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        return (await evaluations.pool.evaluate(cpu_request(KERNEL))).outcome

    assert evaluations.run(asyncio.wait_for(outcome_after_cancelling(), DEADLINE_S)) is Outcome.CORRECT


def test_a_kernel_that_hangs_does_not_delay_other_evaluations(evaluations: Evaluations) -> None:
    async def outcome_beside_a_hanging_one() -> Outcome:
        source = kernel_with("import time; time.sleep(100_000)")
        hanging = asyncio.create_task(evaluations.pool.evaluate(cpu_request(source, timeout_s=ENDLESS_S)))
        await takes_async(0.2)
        found = await evaluations.pool.evaluate(cpu_request(KERNEL))
        assert not hanging.done()
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        return found.outcome

    assert evaluations.run(asyncio.wait_for(outcome_beside_a_hanging_one(), DEADLINE_S)) is Outcome.CORRECT


def test_the_judge_that_was_started_in_advance_evaluates() -> None:
    async def evaluate_after_start() -> None:
        pool = JudgePool(workers=2)
        before = set(psutil.Process().children())
        await pool.expect("triton")
        started = set(psutil.Process().children()) - before
        assert len(started) == 1
        assert (await pool.evaluate(cpu_request(KERNEL))).outcome is Outcome.CORRECT
        assert set(psutil.Process().children()) - before == started
        await pool.aclose()

    asyncio.run(evaluate_after_start())


def test_no_process_remains_after_closing() -> None:
    async def evaluate_and_close() -> list[psutil.Process]:
        pool = JudgePool(workers=1)
        before = set(psutil.Process().children(recursive=True))
        await pool.evaluate(cpu_request(KERNEL))
        started = [process for process in psutil.Process().children(recursive=True) if process not in before]
        assert len(started) >= 2
        await pool.aclose()
        await pool.aclose()
        return started

    started = asyncio.run(evaluate_and_close())
    _, alive = psutil.wait_procs(started, timeout=DEADLINE_S)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
