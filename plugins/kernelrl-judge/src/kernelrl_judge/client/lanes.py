"""A pool of judges that evaluate candidates. A lane is one judge process, bound to a GPU or to the CPU.

A GPU that may have failed is probed before its lanes take more candidates, and stays in quarantine until it passes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import attrs

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest
from kernelrl_judge.client.worker import JudgeDied, JudgeWorker
from kernelrl_judge.device.faults import DeviceFault, DeviceFull

__all__ = ["Lanes"]

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_TASKS_TO_QUARANTINE = 3
"""Number of tasks in a row that must fail on a GPU that passes its probes."""
_FIRST_PAUSE_S = 60.0
_LONGEST_PAUSE_S = 900.0


@attrs.define(eq=False)
class _Device:
    """A GPU, or the CPU, and its judges."""

    name: str | None
    """Its value in `CUDA_VISIBLE_DEVICES`; None for the CPU."""
    idle: list[JudgeWorker]
    """Judges without a candidate; the last one was used most recently."""
    n_free: int
    """Number of free lanes; none is used during an examination."""
    n_spare: int
    """Number of spare judges that may replace a waiting one."""
    examination: asyncio.Task[None] | None = None
    """Set from the first suspected failure until the device passes a probe."""
    quarantine: str = ""
    """Reason of the quarantine; empty: not in quarantine."""
    settled: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Set when an examination has a result."""
    failed_tasks: set[str] = attrs.field(factory=set)
    """Hashes of the tasks whose evaluation failed on this device since the last success."""
    pause_s: float = attrs.field(factory=lambda: _FIRST_PAUSE_S)
    """Seconds until the next probe in quarantine."""


@attrs.frozen(eq=False)
class _Waiter:
    """A request that waits for a lane."""

    lane: asyncio.Future[_Lane]
    alone: bool
    domain: str


@attrs.define(eq=False)
class _Lane:
    """A judge that is assigned to a candidate."""

    device: _Device
    worker: JudgeWorker
    alone: bool
    """Whether all other lanes are empty meanwhile."""
    is_replaced: bool = False
    """Whether a spare judge replaces this one, which waits for its candidate."""


class Lanes:
    """A pool of judges.

    A GPU whose judge reports a device fault or dies is probed by a fresh judge before it is used again. It is put in
    quarantine if the probe fails. It is also put in quarantine if the probe passes but evaluations of three tasks in a
    row failed: one task alone may be too large for it. Candidates then wait for the other GPUs. The probe is repeated,
    and the GPU is used again when it passes.

    Args:
        devices: GPUs to use, or None for the CPU.
        each: number of lanes per device.
        spare: number of additional judges per device. One is started when a candidate keeps its lane waiting, so that
            the next candidate can be evaluated meanwhile.
        judge: creates a judge from its environment.
    """

    def __init__(
        self,
        devices: Sequence[str | None],
        each: int,
        spare: int = 0,
        judge: Callable[[Mapping[str, str]], JudgeWorker] = JudgeWorker,
    ) -> None:
        self._devices = [
            _Device(name, [judge(_environment(name)) for _ in range(each + spare)], each, spare) for name in devices
        ]
        self._workers = [worker for device in self._devices for worker in device.idle]
        self.size = each * len(devices)
        self.spare = spare * len(devices)
        self._waiting: deque[_Waiter] = deque()
        self._n_busy = 0
        self._alone = False
        self._proven = False

    async def start(self) -> None:
        """Start the judge of the first candidate without waiting until it has started."""
        await self._devices[0].idle[-1].start()

    async def aclose(self) -> None:
        examinations = [device.examination for device in self._devices if device.examination is not None]
        for examination in examinations:
            examination.cancel()
        await asyncio.gather(*examinations, return_exceptions=True)
        await asyncio.gather(*(worker.aclose() for worker in self._workers))

    async def evaluate(self, request: EvaluationRequest, runner: str, *, alone: bool = False) -> Evaluation:
        """Evaluate one candidate as soon as a lane is free, or by a fresh judge while all other lanes are empty.

        Raises:
            JudgeDied: the judge died. If it was alone, its device passed the probe.
            DeviceFull: the memory of a GPU does not suffice, beside other evaluations or at all.
            InfrastructureError: the device failed, or every GPU is in quarantine.
            UsageError, MissingPrerequisite: see `JudgeWorker.evaluate`.
        """

        def work(lane: _Lane) -> Awaitable[Evaluation]:
            return lane.worker.evaluate(request, runner, lambda: self._replace(lane), alone=alone)

        return await self._done(work, request, alone=alone)

    async def run_reference(self, request: EvaluationRequest, runner: str, *, alone: bool = True) -> None:
        """Run the reference of a request without its candidate, by a fresh judge while all other lanes are empty.

        Args:
            alone: false: by any judge, whatever the others do.

        Raises:
            What `evaluate` raises.
        """
        await self._done(lambda lane: lane.worker.run_reference(request, runner), request, alone=alone)

    async def _done(
        self, work: Callable[[_Lane], Awaitable[_Result]], request: EvaluationRequest, *, alone: bool
    ) -> _Result:
        """The result of work of a judge; see `evaluate`."""
        lane = await self._take(alone, request.domain)
        device = lane.device
        try:
            if alone:
                # Idle judges keep memory of a GPU: a context, and a share for their next candidates.
                others = device.idle if device.name is not None else []
                await asyncio.gather(*(judge.aclose() for judge in (lane.worker, *others)))
            result = await work(lane)
            self._trust(device)
            return result
        except DeviceFault as fault:
            if not isinstance(fault, DeviceFull):
                # Code of others could report a fault of a device that is well.
                if not request.domain:
                    device.failed_tasks.add(request.task_sha256)
                self._suspect(device, str(fault))
            raise
        except JudgeDied as death:
            self._suspect(device, str(death))
            if not alone:
                raise
            failure: JudgeDied | MissingPrerequisite = death
        except MissingPrerequisite as missing:
            # A GPU worked before, so a missing prerequisite means that this GPU is gone.
            if device.name is None or not self._proven:
                raise
            self._suspect(device, str(missing))
            failure = missing
        finally:
            self._give_back(lane)
        if device.examination is not None:
            await device.settled.wait()
        if device.quarantine:
            raise DeviceFault(f"GPU {device.name} failed: {device.quarantine}") from failure
        raise failure

    # --- lanes ------------------------------------------------------------------------------------------------------

    async def _take(self, alone: bool, domain: str) -> _Lane:
        """A lane of a working device, in the order of the requests."""
        waiter: asyncio.Future[_Lane] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiter(waiter, alone, domain))
        self._hand_out()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                # The cancelled request may have been the one that the others waited for.
                self._hand_out()
            elif waiter.exception() is None:
                self._give_back(waiter.result())
            raise

    def _hand_out(self) -> None:
        """Give free lanes to the requests that wait, in their order."""
        while self._waiting and not self._alone:
            waiter, alone = self._waiting[0].lane, self._waiting[0].alone
            if waiter.done():
                self._waiting.popleft()
                continue
            if self.quarantine:
                waiter.set_exception(self._no_gpu_left())
                self._waiting.popleft()
                continue
            if alone and self._n_busy:
                return
            usable = [device for device in self._devices if device.n_free and device.examination is None]
            if not usable:
                return
            device = max(usable, key=lambda device: device.n_free)
            device.n_free -= 1
            self._n_busy += 1
            self._alone = alone
            judge = _best_judge(device.idle, self._waiting[0].domain)
            device.idle.remove(judge)
            waiter.set_result(_Lane(device, judge, alone))
            self._waiting.popleft()

    def _replace(self, lane: _Lane) -> None:
        """Let a spare judge of the device work while this one waits."""
        if not lane.is_replaced and lane.device.n_spare:
            lane.is_replaced = True
            lane.device.n_spare -= 1
            lane.device.n_free += 1
            self._hand_out()

    def _give_back(self, lane: _Lane) -> None:
        lane.device.idle.append(lane.worker)
        if lane.is_replaced:
            lane.device.n_spare += 1
        else:
            lane.device.n_free += 1
        self._n_busy -= 1
        if lane.alone:
            self._alone = False
        self._hand_out()

    # --- health -----------------------------------------------------------------------------------------------------

    def _trust(self, device: _Device) -> None:
        """Note a success of a device."""
        self._proven = True
        if device.examination is None:
            device.failed_tasks.clear()
            device.pause_s = _FIRST_PAUSE_S

    def _suspect(self, device: _Device, why: str) -> None:
        """Start an examination of a GPU, unless one is in progress."""
        if device.name is not None and device.examination is None:
            device.settled.clear()
            device.examination = asyncio.create_task(self._examine(device, why))

    async def _examine(self, device: _Device, why: str) -> None:
        """Keep candidates away from a device until it passes a probe."""
        reason = await self._probe(device)
        if reason is None and len(device.failed_tasks) >= _TASKS_TO_QUARANTINE:
            reason = f"it passes its probe, but several tasks in a row failed: {why}"
        while reason is not None:
            logger.error(
                "GPU %s is in quarantine; next probe in %.0f min: %s", device.name, device.pause_s / 60, reason
            )
            device.quarantine = reason
            device.settled.set()
            self._hand_out()
            pause_s, device.pause_s = device.pause_s, min(_LONGEST_PAUSE_S, 2 * device.pause_s)
            await asyncio.sleep(pause_s)
            reason = await self._probe(device)
        if device.quarantine:
            logger.warning("GPU %s passes its probe and is used again", device.name)
        device.quarantine = ""
        device.examination = None
        device.settled.set()
        self._hand_out()

    async def _probe(self, device: _Device) -> str | None:
        """Reason of a failed probe, or None. Terminates the idle judges: their CUDA contexts may be corrupt."""
        judges = list(device.idle)
        await asyncio.gather(*(judge.aclose() for judge in judges))
        try:
            return await judges[-1].probe()
        except (InfrastructureError, OSError) as error:
            return " ".join(str(error).split())

    @property
    def quarantine(self) -> str:
        """Reasons why all GPUs are in quarantine; empty if any GPU is not."""
        reasons = [f"{device.name}: {device.quarantine}" for device in self._devices if device.quarantine]
        return "; ".join(reasons) if len(reasons) == len(self._devices) else ""

    def _no_gpu_left(self) -> InfrastructureError:
        return InfrastructureError(
            f"every GPU is in quarantine ({self.quarantine})",
            fix="check them with nvidia-smi or rocm-smi, and the driver's messages with dmesg; reset them "
            "(nvidia-smi --gpu-reset) or restart the machine; remove a broken one from CUDA_VISIBLE_DEVICES",
            see="gpu-fault",
        )


def _best_judge(idle: Sequence[JudgeWorker], domain: str) -> JudgeWorker:
    """The judge that can serve a domain soonest: one that serves it already, or that ends none of another domain."""

    def preference(judge: JudgeWorker) -> int:
        if not judge.runs:
            return 1
        return 2 if judge.domain == domain else 0

    # The last one of several was used most recently.
    return max(reversed(idle), key=preference)


def _environment(device: str | None) -> dict[str, str]:
    if device is None:
        return {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    return {"CUDA_VISIBLE_DEVICES": device, "HIP_VISIBLE_DEVICES": device}
