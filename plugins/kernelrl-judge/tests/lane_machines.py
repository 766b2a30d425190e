"""GPUs and judges that lanes are tried with: they do what a test says."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import pytest

from kernelrl_core.types import Evaluation, EvaluationRequest, EvaluationSettings, Outcome, sha256_text
from kernelrl_core.version import API_VERSION
from kernelrl_judge.client.lanes import Lanes
from kernelrl_judge.client.worker import DeviceFault

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

    async def evaluate(
        self, request: EvaluationRequest, runner: str, slow: Callable[[], None], *, alone: bool
    ) -> Evaluation:
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
