"""Fake GPUs and judges for the tests of lanes. A test defines their behaviour."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import attrs
import pytest

from kernelrl_core.api import API_VERSION
from kernelrl_core.api.checkers import Evaluation
from kernelrl_core.api.config import InstalledGpu
from kernelrl_core.api.evaluators import EvaluationRequest, EvaluationSettings, sha256_text
from kernelrl_core.api.tasks import Outcome
from kernelrl_judge.client.lanes import Lanes
from kernelrl_judge.device.faults import DeviceFault
from kernelrl_testing.waiting import DEADLINE_S, takes_async

Work = Callable[[str, Callable[[], None]], Awaitable[None]]


class Machine:
    """GPUs with their judges."""

    def __init__(self) -> None:
        self.unwell: dict[str, str] = {}
        """Reason why the probes of a GPU fail, by GPU."""
        self.heals_at: dict[str, int] = {}
        """Number of the first probe that passes, by GPU."""
        self.work: dict[str, Work] = {}
        """Function that is called during the evaluation of a candidate, by its source."""
        self.evaluated: defaultdict[str, list[str]] = defaultdict(list)
        """Sources of the candidates, by GPU; those of the tasks where a reference runs without a candidate."""
        self.n_running: Counter[str] = Counter()
        """Number of current evaluations, by GPU."""
        self.probes: Counter[str] = Counter()
        """Number of probes, by GPU."""
        self.may_reply = asyncio.Event()
        """Set unless probes wait."""
        self.may_reply.set()
        self.judges: list[Judge] = []
        self.used: dict[str, float] = {}
        """Share of the memory that is in use, by GPU."""

    def judge(self, environment: Mapping[str, str]) -> Any:
        self.judges.append(Judge(self, environment["CUDA_VISIBLE_DEVICES"]))
        return self.judges[-1]

    def lanes(self, *gpus: str, each: int = 1, memory_mib: Mapping[str, int] | None = None) -> Lanes:
        """Lanes of GPUs with these names."""
        known = memory_mib or {}
        installed = [InstalledGpu(gpu, memory_mib=known.get(gpu, 0)) for gpu in gpus]
        return Lanes(installed, each, judge=self.judge, used_share=self.used.get)


class Judge:
    """A fake `JudgeWorker`."""

    def __init__(self, machine: Machine, gpu: str) -> None:
        self.machine = machine
        self.gpu = gpu
        self.busy = False
        self.n_ends = 0
        self.runs = False
        self.domain = ""

    async def evaluate(
        self, request: EvaluationRequest, runner: str, slow: Callable[[], None], *, alone: bool
    ) -> Evaluation:
        assert not self.busy
        self.busy = True
        self.machine.evaluated[self.gpu].append(request.source)
        self.machine.n_running[self.gpu] += 1
        try:
            work = self.machine.work.get(request.source)
            if work is not None:
                await work(self.gpu, slow)
            return Evaluation(Outcome.CORRECT)
        finally:
            self.machine.n_running[self.gpu] -= 1
            self.busy = False

    async def run_reference(self, request: EvaluationRequest, runner: str) -> None:
        await self.evaluate(attrs.evolve(request, source=request.task_source), runner, lambda: None, alone=True)

    async def probe(self) -> str | None:
        assert not self.busy
        self.busy = True
        try:
            self.machine.probes[self.gpu] += 1
            await self.machine.may_reply.wait()
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
    """Raise an error on these GPUs, or on all if none is given."""

    async def work(gpu: str, slow: Callable[[], None]) -> None:
        if not gpus or gpu in gpus:
            raise error

    return work


def waiting(event: asyncio.Event) -> Work:
    async def work(gpu: str, slow: Callable[[], None]) -> None:
        await event.wait()

    return work


async def soon() -> None:
    """Let all tasks continue as far as they can."""
    for _ in range(50):
        await takes_async(0)


def run(test: Callable[[Machine], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await asyncio.wait_for(test(Machine()), DEADLINE_S)

    asyncio.run(whole())


async def fail(lanes: Lanes, machine: Machine, gpu: str, task: str = "task") -> None:
    """Evaluate a candidate under which this GPU fails. It must be the GPU of the next lane."""
    machine.work["fault"] = raising(DeviceFault("Xid 79"), gpu)
    with pytest.raises(DeviceFault):
        await lanes.evaluate(request("fault", task), "")


async def well(lanes: Lanes) -> None:
    """Wait for the end of the first GPU's examination."""
    examination = lanes._devices[0].examination
    assert examination is not None
    await examination
