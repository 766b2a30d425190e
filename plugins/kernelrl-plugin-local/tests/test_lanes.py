"""Which judge a candidate gets, and what becomes of a GPU that misbehaves."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import pytest

from kernelrl_core.errors import InfrastructureError, MissingPrerequisite
from kernelrl_core.values import Evaluation, EvaluationRequest, EvaluationSettings, Outcome, sha256_text
from kernelrl_core.version import API_VERSION
from kernelrl_judge.worker import DeviceFault, JudgeDied
from kernelrl_plugin_local import lanes as module
from kernelrl_plugin_local.lanes import Lanes

Work = Callable[[str, Callable[[], None]], Awaitable[None]]


class Machine:
    """GPUs, and what they do.

    `work` happens under a candidate, by its source; `unwell` is why a GPU fails its probes, until the one `heals_at`.
    """

    def __init__(self) -> None:
        self.unwell: dict[str, str] = {}
        self.work: dict[str, Work] = {}
        self.judged: defaultdict[str, list[str]] = defaultdict(list)
        self.under_way: Counter[str] = Counter()
        self.probes: Counter[str] = Counter()
        self.heals_at: dict[str, int] = {}
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.judges: list[Judge] = []

    def judge(self, environment: Mapping[str, str]) -> Any:
        self.judges.append(Judge(self, environment["CUDA_VISIBLE_DEVICES"]))
        return self.judges[-1]


class Judge:
    """Stands in for a `JudgeWorker`."""

    def __init__(self, machine: Machine, gpu: str) -> None:
        self.machine, self.gpu, self.busy, self.n_ends = machine, gpu, False, 0

    async def evaluate(self, request: EvaluationRequest, runner: str, slow: Callable[[], None]) -> Evaluation:
        assert not self.busy
        self.busy = True
        self.machine.judged[self.gpu].append(request.source)
        self.machine.under_way[self.gpu] += 1
        try:
            work = self.machine.work.get(request.source)
            if work is not None:
                await work(self.gpu, slow)
            return Evaluation(Outcome.CORRECT)
        finally:
            self.machine.under_way[self.gpu] -= 1
            self.busy = False

    async def probe(self) -> str | None:
        assert not self.busy
        self.busy = True
        try:
            self.machine.probes[self.gpu] += 1
            await self.machine.may_answer.wait()
            if self.machine.probes[self.gpu] == self.machine.heals_at.get(self.gpu):
                return None
            return self.machine.unwell.get(self.gpu)
        finally:
            self.busy = False

    async def aclose(self) -> None:
        assert not self.busy
        self.n_ends += 1


def request(source: str, task: str = "task") -> EvaluationRequest:
    return EvaluationRequest(
        task_id=task,
        task_source=task,
        task_sha256=sha256_text(task),
        source=source,
        source_sha256=sha256_text(source),
        backend="triton",
        backend_options={},
        settings=EvaluationSettings(),
        seed="ab" * 16,
        api_version=API_VERSION,
    )


def raising(error: Exception, *gpus: str) -> Work:
    """On these GPUs, or on all."""

    async def work(gpu: str, slow: Callable[[], None]) -> None:
        if not gpus or gpu in gpus:
            raise error

    return work


def waiting(event: asyncio.Event) -> Work:
    async def work(gpu: str, slow: Callable[[], None]) -> None:
        await event.wait()

    return work


async def soon() -> None:
    """Let everything that can go on go on."""
    for _ in range(50):
        await asyncio.sleep(0)


def run(test: Callable[[Machine], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(test(Machine()), 10)

    asyncio.run(whole())


async def fail(lanes: Lanes, machine: Machine, gpu: str, task: str = "task") -> None:
    """A candidate under which this GPU fails; the GPU must be the next one to be used."""
    machine.work["fault"] = raising(DeviceFault("Xid 79"), gpu)
    with pytest.raises(DeviceFault):
        await lanes.evaluate(request("fault", task), "")


async def well(lanes: Lanes) -> None:
    """Wait for the end of the first GPU's examination."""
    examination = lanes._devices[0].examination
    assert examination is not None
    await examination


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(module, "_LONGEST_PAUSE_S", 0.05)


def test_candidates_spread_over_the_gpus_before_they_share_one() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a", "b", "c"], 2, judge=machine.judge)
        machine.work["x"] = waiting(done := asyncio.Event())
        tasks = [asyncio.create_task(lanes.evaluate(request("x"), "")) for _ in range(3)]
        await soon()
        assert machine.under_way == {"a": 1, "b": 1, "c": 1}
        tasks += [asyncio.create_task(lanes.evaluate(request("x"), "")) for _ in range(4)]
        await soon()
        assert lanes.size == 6
        assert machine.under_way == {"a": 2, "b": 2, "c": 2}
        done.set()
        await asyncio.gather(*tasks)
        assert sum(map(len, machine.judged.values())) == 7

    run(test)


def test_candidates_that_follow_one_another_get_the_judge_that_is_warm() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 3, judge=machine.judge)
        used = set()
        for _ in range(4):
            await lanes.evaluate(request("x"), "")
            used.add(lanes._devices[0].idle[-1])
        assert len(used) == 1

    run(test)


def test_a_gpu_that_fails_takes_no_candidate_before_its_probe_has_passed() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 2, judge=machine.judge)
        machine.may_answer.clear()
        await fail(lanes, machine, "a")
        after = asyncio.create_task(lanes.evaluate(request("after"), ""))
        await soon()
        assert machine.probes == {"a": 1}
        assert machine.judged["a"] == ["fault"]
        machine.may_answer.set()
        assert (await after).outcome is Outcome.CORRECT

    run(test)


def test_judges_whose_contexts_may_have_suffered_are_replaced() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 3, judge=machine.judge)
        await fail(lanes, machine, "a")
        await lanes.evaluate(request("x"), "")
        assert [judge.n_ends for judge in machine.judges] == [1, 1, 1]

    run(test)


def test_a_death_of_a_judge_is_a_reason_for_a_probe() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 1, judge=machine.judge)
        machine.work["killer"] = raising(JudgeDied("status -9"))
        with pytest.raises(JudgeDied):
            await lanes.evaluate(request("killer"), "")
        await lanes.evaluate(request("x"), "")
        assert machine.probes == {"a": 1}

    run(test)


def test_whoever_waits_gets_a_lane_of_a_gpu_that_works() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a", "b"], 1, judge=machine.judge)
        machine.unwell["a"] = "no answer"
        await fail(lanes, machine, "a")
        machine.work["x"] = waiting(done := asyncio.Event())
        tasks = [asyncio.create_task(lanes.evaluate(request("x"), "")) for _ in range(3)]
        await soon()
        assert machine.under_way == {"a": 0, "b": 1}
        done.set()
        await asyncio.gather(*tasks)
        assert machine.judged == {"a": ["fault"], "b": ["x"] * 3}
        await lanes.aclose()

    run(test)


def test_a_gpu_comes_back_when_it_passes_a_later_probe(short_pauses: None, caplog: pytest.LogCaptureFixture) -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a", "b"], 1, judge=machine.judge)
        machine.unwell["a"], machine.heals_at["a"] = "no answer", 3
        await fail(lanes, machine, "a")
        await well(lanes)
        assert machine.probes["a"] == 3
        await lanes.evaluate(request("x"), "")
        assert machine.judged["a"] == ["fault", "x"]

    with caplog.at_level(logging.WARNING):
        run(test)
    said = [record.getMessage() for record in caplog.records]
    assert "GPU a is in quarantine" in said[0]
    assert "no answer" in said[0]
    assert said[-1] == "GPU a passes its probe and is used again"


def test_pauses_between_probes_grow_to_a_quarter_of_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(machine: Machine) -> None:
        pauses: list[float] = []
        sleep = asyncio.sleep

        async def passing(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 6:
                machine.unwell.clear()
            await sleep(0)

        lanes = Lanes(["a"], 1, judge=machine.judge)
        machine.unwell["a"] = "no answer"
        monkeypatch.setattr(asyncio, "sleep", passing)
        await fail(lanes, machine, "a")
        await well(lanes)
        assert pauses == [60, 120, 240, 480, 900, 900]

    run(test)


def test_a_gpu_that_fails_three_tasks_in_a_row_is_in_quarantine_although_its_probe_passes() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 1, judge=machine.judge)
        for task in ("1", "2", "3"):
            await fail(lanes, machine, "a", task)
        with pytest.raises(InfrastructureError, match="Xid 79"):
            await lanes.evaluate(request("x"), "")
        assert machine.probes == {"a": 3}
        await lanes.aclose()

    run(test)


def test_a_verdict_in_between_breaks_the_row() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 1, judge=machine.judge)
        for task in ("1", "2", "3", "4"):
            await fail(lanes, machine, "a", task)
            await lanes.evaluate(request("x"), "")

    run(test)


def test_one_task_that_is_too_much_for_a_gpu_does_not_put_it_in_quarantine() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 1, judge=machine.judge)
        for _ in range(9):
            await fail(lanes, machine, "a", "too large")
        await lanes.evaluate(request("x"), "")

    run(test)


def test_a_gpu_that_fails_again_after_its_quarantine_goes_back_for_longer(short_pauses: None) -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 1, judge=machine.judge)
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


def test_with_every_gpu_in_quarantine_all_who_wait_are_told_which_and_why_and_what_to_do() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a", "b"], 1, judge=machine.judge)
        machine.unwell = {"a": "no answer", "b": "wrong product"}
        machine.work["fault"] = raising(DeviceFault("Xid 79"))
        machine.may_answer.clear()
        tasks = [asyncio.create_task(lanes.evaluate(request("fault"), "")) for _ in range(2)]
        tasks.append(asyncio.create_task(lanes.evaluate(request("x"), "")))
        tasks.append(asyncio.create_task(lanes.evaluate_alone(request("x"), "")))
        await soon()
        machine.may_answer.set()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, DeviceFault) for error in errors[:2])
        for error in errors[2:]:
            assert isinstance(error, InfrastructureError)
            assert error.message == "every GPU is in quarantine (a: no answer; b: wrong product)"
            assert "nvidia-smi" in error.fix
            assert "CUDA_VISIBLE_DEVICES" in error.fix
        await lanes.aclose()

    run(test)


def test_alone_means_that_nobody_else_is_judged_and_takes_a_gpu_that_works() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a", "b"], 2, judge=machine.judge)
        machine.unwell["a"] = "no answer"
        await fail(lanes, machine, "a")
        machine.work["x"] = waiting(x_done := asyncio.Event())
        machine.work["single"] = waiting(single_done := asyncio.Event())
        before = asyncio.create_task(lanes.evaluate(request("x"), ""))
        await soon()
        single = asyncio.create_task(lanes.evaluate_alone(request("single"), ""))
        after = asyncio.create_task(lanes.evaluate(request("after"), ""))
        await soon()
        assert machine.judged["b"] == ["x"]
        x_done.set()
        await soon()
        assert machine.judged["b"] == ["x", "single"]
        single_done.set()
        await asyncio.gather(before, single, after)
        assert machine.judged == {"a": ["fault"], "b": ["x", "single", "after"]}
        await lanes.aclose()

    run(test)


def test_a_death_under_a_candidate_alone_is_the_fault_of_a_gpu_that_is_unwell() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 1, judge=machine.judge)
        machine.work["x"] = raising(JudgeDied("status -9"))
        with pytest.raises(JudgeDied):
            await lanes.evaluate_alone(request("x"), "")
        machine.unwell["a"] = "no answer"
        with pytest.raises(DeviceFault, match="no answer"):
            await lanes.evaluate_alone(request("x"), "")
        await lanes.aclose()

    run(test)


def test_a_gpu_that_is_gone_is_broken_and_one_that_never_was_is_missing() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a", "b"], 1, judge=machine.judge)
        machine.work["gone"] = raising(MissingPrerequisite("torch finds no GPU", fix="look"), "a")
        machine.unwell["a"] = "torch finds no GPU"
        with pytest.raises(MissingPrerequisite):
            await lanes.evaluate(request("gone"), "")
        await lanes.evaluate(request("x"), "")
        with pytest.raises(DeviceFault, match="finds no GPU"):
            await lanes.evaluate(request("gone"), "")
        await lanes.evaluate(request("gone"), "")
        await lanes.aclose()

    run(test)


def test_what_is_missing_on_a_sound_gpu_stays_missing() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 1, judge=machine.judge)
        machine.work["cuda"] = raising(MissingPrerequisite("nvcc is missing", fix="install it"))
        await lanes.evaluate(request("x"), "")
        with pytest.raises(MissingPrerequisite, match="nvcc"):
            await lanes.evaluate(request("cuda"), "")
        await lanes.evaluate(request("x"), "")

    run(test)


@pytest.mark.parametrize("alone", [False, True])
def test_a_cancelled_candidate_gives_its_lane_back(alone: bool) -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 2, judge=machine.judge)
        machine.work["x"] = waiting(asyncio.Event())
        judge = lanes.evaluate_alone if alone else lanes.evaluate
        for n_steps in range(6):
            cancelled = [asyncio.create_task(judge(request("x"), "")) for _ in range(3)]
            for _ in range(n_steps):
                await asyncio.sleep(0)
            for task in cancelled:
                task.cancel()
            assert all(
                isinstance(error, asyncio.CancelledError)
                for error in await asyncio.gather(*cancelled, return_exceptions=True)
            )
        await lanes.evaluate_alone(request("y"), "")
        machine.work["z"] = waiting(done := asyncio.Event())
        tasks = [asyncio.create_task(lanes.evaluate(request("z"), "")) for _ in range(2)]
        await soon()
        assert machine.under_way == {"a": 2}
        done.set()
        await asyncio.gather(*tasks)

    run(test)


def test_whoever_is_cancelled_just_after_a_lane_was_given_to_it_gives_it_on() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 1, judge=machine.judge)
        done = asyncio.Event()

        async def end(gpu: str, slow: Callable[[], None]) -> None:
            await done.wait()
            # Runs when the lane has changed hands, and before the new owner does.
            asyncio.get_running_loop().call_soon(second.cancel)

        machine.work["x"] = end
        first = asyncio.create_task(lanes.evaluate(request("x"), ""))
        second = asyncio.create_task(lanes.evaluate(request("second"), ""))
        third = asyncio.create_task(lanes.evaluate(request("third"), ""))
        await soon()
        done.set()
        await asyncio.gather(first, second, third, return_exceptions=True)
        assert second.cancelled()
        assert machine.judged["a"] == ["x", "third"]

    run(test)


def test_a_candidate_waiting_to_be_alone_that_is_cancelled_keeps_nobody_waiting() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 2, judge=machine.judge)
        machine.work["x"] = waiting(done := asyncio.Event())
        first = asyncio.create_task(lanes.evaluate(request("x"), ""))
        await soon()
        single = asyncio.create_task(lanes.evaluate_alone(request("single"), ""))
        await soon()
        second = asyncio.create_task(lanes.evaluate(request("second"), ""))
        await soon()
        assert machine.judged["a"] == ["x"]
        single.cancel()
        await second
        done.set()
        await first

    run(test)


def test_who_is_slow_on_the_processor_leaves_its_place_as_often_as_there_are_spare_judges() -> None:
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
        assert machine.under_way == {"": 3}
        single = asyncio.create_task(lanes.evaluate_alone(request("single"), ""))
        over.set()
        await asyncio.gather(*tasks, single)
        assert machine.judged[""] == ["slow"] * 4 + ["single"]
        assert (lanes._devices[0].n_free, lanes._devices[0].n_spare, len(lanes._devices[0].idle)) == (1, 2, 3)

    run(test)


def test_a_judge_without_a_gpu_is_never_examined() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes([None], 2, judge=machine.judge)
        machine.work["x"] = raising(JudgeDied("status -9"))
        for judge in (lanes.evaluate, lanes.evaluate_alone):
            with pytest.raises(JudgeDied):
                await judge(request("x"), "")
        await soon()
        assert not machine.probes

    run(test)


def test_closing_ends_an_examination_under_way() -> None:
    async def test(machine: Machine) -> None:
        lanes = Lanes(["a"], 1, judge=machine.judge)
        machine.may_answer.clear()
        await fail(lanes, machine, "a")
        await soon()
        examination = lanes._devices[0].examination
        assert examination is not None
        await lanes.aclose()
        assert examination.done()

    run(test)
