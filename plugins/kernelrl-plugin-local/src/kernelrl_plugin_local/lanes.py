"""Judges waiting for candidates: a lane is one judge process, bound to a GPU or to none."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

from kernelrl_core.errors import InfrastructureError
from kernelrl_core.requirements import gpu_vendors
from kernelrl_core.values import Evaluation, EvaluationRequest
from kernelrl_judge.worker import DeviceFault, JudgeWorker

__all__ = ["Lanes", "visible_gpus"]

logger = logging.getLogger(__name__)

_FAULTS_TO_QUARANTINE = 3


def visible_gpus() -> list[str]:
    """What `CUDA_VISIBLE_DEVICES` of each lane is set to: the GPUs that this process may use.

    `CUDA_VISIBLE_DEVICES` is honoured, and `HIP_VISIBLE_DEVICES` on AMD; no driver is loaded into this process.
    """
    if not gpu_vendors():
        return []
    for variable in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        given = os.environ.get(variable)
        if given is not None:
            names = [name.strip() for name in given.split(",") if name.strip()]
            return names[: names.index("-1")] if "-1" in names else names
    if os.path.exists("/dev/kfd"):
        nodes = [name for name in os.listdir("/dev/dri") if name.startswith("renderD")]
        return [str(index) for index in range(len(nodes))]
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


class Lanes:
    """A pool of judges.

    A GPU that fails its judge several times in a row is put in quarantine: its lanes take no more candidates.

    Args:
        devices: GPU of each lane, None for the processor.
        each: lanes per device.
        spare: judges beyond them, on no device, that are started when a candidate keeps its lane waiting: its lane
            goes to the next one meanwhile.
    """

    def __init__(self, devices: Sequence[str | None], each: int, spare: int = 0) -> None:
        # The lanes of a device are not neighbours, so that the first candidates spread over the devices.
        order = [device for _ in range(each) for device in devices]
        self._idle = [(device, JudgeWorker(_environment(device))) for device in [*[None] * spare, *reversed(order)]]
        self._workers = [worker for _, worker in self._idle]
        self.size = len(order)
        self.spare = self._spare_left = spare
        self._spares_idle = asyncio.Event()
        self._spares_idle.set()
        self._free = asyncio.Semaphore(self.size)
        self._alone = asyncio.Lock()
        self._faults: Counter[str] = Counter()
        self._quarantined: set[str] = set()

    async def evaluate(self, request: EvaluationRequest, runner: str) -> Evaluation:
        """Judge one candidate as soon as a lane is free.

        Raises:
            InfrastructureError: the judge died, the device failed, or no device is left.
        """
        async with self._lane() as slow:
            device, worker = self._take()
            try:
                evaluation = await worker.evaluate(request, runner, slow)
            except DeviceFault as fault:
                self._count(device, fault)
                raise
            else:
                if device is not None:
                    self._faults[device] = 0
                return evaluation
            finally:
                self._idle.append((device, worker))

    async def evaluate_alone(self, request: EvaluationRequest, runner: str) -> Evaluation:
        """Judge one candidate while all other lanes are empty."""
        async with self._alone, contextlib.AsyncExitStack() as lanes:
            for _ in range(self.size):
                await lanes.enter_async_context(self._free)
            await self._spares_idle.wait()
            _, worker = self._idle[-1]
            return await worker.evaluate(request, runner)

    async def aclose(self) -> None:
        await asyncio.gather(*(worker.aclose() for worker in self._workers))

    @contextlib.asynccontextmanager
    async def _lane(self) -> AsyncIterator[Callable[[], None]]:
        """A lane, and what to call when another judge could use it for a while."""
        await self._free.acquire()
        left = False

        def leave() -> None:
            nonlocal left
            if not left and self._spare_left:
                left = True
                self._spare_left -= 1
                self._spares_idle.clear()
                self._free.release()

        try:
            yield leave
        finally:
            if left:
                self._spare_left += 1
                if self._spare_left == self.spare:
                    self._spares_idle.set()
            else:
                self._free.release()

    def _take(self) -> tuple[str | None, JudgeWorker]:
        for index in range(len(self._idle) - 1, -1, -1):
            if self._idle[index][0] not in self._quarantined:
                return self._idle.pop(index)
        if self._quarantined >= {device for device, _ in self._idle}:
            raise InfrastructureError(f"every GPU is in quarantine: {', '.join(sorted(self._quarantined))}")
        raise InfrastructureError("the lanes of the working GPUs are all taken")

    def _count(self, device: str | None, fault: DeviceFault) -> None:
        if device is None:
            return
        self._faults[device] += 1
        if self._faults[device] >= _FAULTS_TO_QUARANTINE and device not in self._quarantined:
            self._quarantined.add(device)
            logger.error(
                "GPU %s failed %d times in a row and is no longer used: %s", device, self._faults[device], fault
            )


def _environment(device: str | None) -> dict[str, str]:
    if device is None:
        return {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    return {"CUDA_VISIBLE_DEVICES": device, "HIP_VISIBLE_DEVICES": device}
