"""A pool of judges that evaluate candidates. A lane is one judge process, bound to a GPU or to the CPU.

A GPU that may have failed is probed before its lanes take more candidates, and stays in quarantine until it passes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import TypeVar

import attrs

from kernelrl_core.api.config import InstalledGpu, used_memory_share
from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest
from kernelrl_judge.client.worker import JudgeDied, JudgeWorker
from kernelrl_judge.device.faults import DeviceFault, DeviceFull

__all__ = ["Alone", "Lanes"]

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

_TASKS_TO_QUARANTINE = 3
"""Number of tasks in a row that must fail on a GPU that passes its probes."""
_FULL_TO_EXAMINATION = 3
"""Number of candidates in a row that find too little memory on one of several GPUs."""
_OTHERS_SHARE = 0.15
"""Share of a GPU's memory, without judges, that is more than the driver uses: other programs hold it."""
_FIRST_PAUSE_S = 60.0
_LONGEST_PAUSE_S = 900.0


class Alone(Enum):
    """The lanes that are empty while a candidate is evaluated."""

    NO = "no"
    ON_DEVICE = "on its device"
    """No other candidate uses the same GPU; its judge is a fresh one."""
    ON_MACHINE = "on the machine"
    """No other candidate is evaluated; its judge is a fresh one."""


@attrs.define(eq=False)
class _Device:
    """A GPU, or the CPU, and its judges."""

    name: str | None
    """Its value in `CUDA_VISIBLE_DEVICES`; None for the CPU."""
    memory_mib: int
    """0: unknown."""
    idle: list[JudgeWorker]
    """Judges without a candidate; the last one was used most recently."""
    n_free: int
    """Number of free lanes; none is used during an examination."""
    n_spare: int
    """Number of spare judges that may replace a waiting one."""
    n_busy: int = 0
    """Number of candidates on it."""
    reserved: _Waiter | None = None
    """The request that waits until this device is empty. Meanwhile no other gets a lane of it."""
    is_alone: bool = False
    """Whether its one candidate is to stay alone on it."""
    n_full: int = 0
    """Number of candidates that found too little memory since the last success."""
    examination: asyncio.Task[None] | None = None
    """Set from the first suspected failure until the device passes a probe."""
    quarantine: str = ""
    """Reason of the quarantine; empty: not in quarantine."""
    emptied: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Set while no candidate is on it."""
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
    alone: Alone
    domain: str
    avoided: str | None
    """GPU that another one is preferred to, if that has as much memory."""


@attrs.define(eq=False)
class _Lane:
    """A judge that is assigned to a candidate."""

    device: _Device
    worker: JudgeWorker
    alone: Alone
    is_replaced: bool = False
    """Whether a spare judge replaces this one, which waits for its candidate."""


class Lanes:
    """A pool of judges.

    A GPU whose judge reports a device fault or dies is probed by a fresh judge before it is used again. It is put in
    quarantine if the probe fails. It is also put in quarantine if the probe passes but evaluations of three tasks in a
    row failed: one task alone may be too large for it. Candidates then wait for the other GPUs. The probe is repeated,
    and the GPU is used again when it passes. One of several GPUs whose memory is held by other programs is in
    quarantine, too, until they release it.

    Args:
        devices: GPUs to use, or None for the CPU.
        each: number of lanes per device.
        spare: number of additional judges per device. One is started when a candidate keeps its lane waiting, so that
            the next candidate can be evaluated meanwhile.
        judge: creates a judge from its environment.
        used_share: the share of a GPU's memory that is in use, by its name; None if it is unknown. May block.
    """

    def __init__(
        self,
        devices: Sequence[InstalledGpu | None],
        each: int,
        spare: int = 0,
        judge: Callable[[Mapping[str, str]], JudgeWorker] = JudgeWorker,
        used_share: Callable[[str], float | None] = used_memory_share,
    ) -> None:
        self._devices = []
        for gpu in devices:
            name = gpu.id if gpu is not None else None
            memory_mib = gpu.memory_mib if gpu is not None else 0
            judges = [judge(_environment(name)) for _ in range(each + spare)]
            device = _Device(name, memory_mib, judges, each, spare)
            device.emptied.set()
            self._devices.append(device)
        self._used_share = used_share
        self._workers = [worker for device in self._devices for worker in device.idle]
        self.size = each * len(devices)
        self.spare = spare * len(devices)
        self._waiting: deque[_Waiter] = deque()
        self._n_busy = 0
        self._is_taken = False
        """Whether a candidate is alone on the machine."""
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

    async def evaluate(
        self, request: EvaluationRequest, runner: str, *, alone: Alone = Alone.NO, avoided: str | None = None
    ) -> Evaluation:
        """Evaluate one candidate as soon as a lane is free; a candidate that is alone gets a fresh judge.

        Args:
            avoided: GPU that another one is preferred to, if the candidate is alone on its device.

        Raises:
            JudgeDied: the judge died. If it was alone, its device passed the probe.
            DeviceFull: the memory of a GPU does not suffice, beside other evaluations or at all.
            InfrastructureError: the device failed, or every GPU is in quarantine.
            UsageError, MissingPrerequisite: see `JudgeWorker.evaluate`.
        """

        def work(lane: _Lane) -> Awaitable[Evaluation]:
            is_alone = alone is not Alone.NO
            return lane.worker.evaluate(request, runner, lambda: self._replace(lane), alone=is_alone)

        return await self._done(work, request, alone, avoided)

    async def run_reference(self, request: EvaluationRequest, runner: str, *, alone: Alone) -> None:
        """Run the reference of a request without its candidate.

        Raises:
            What `evaluate` raises.
        """
        await self._done(lambda lane: lane.worker.run_reference(request, runner), request, alone, None)

    async def _done(
        self,
        work: Callable[[_Lane], Awaitable[_Result]],
        request: EvaluationRequest,
        alone: Alone,
        avoided: str | None,
    ) -> _Result:
        """The result of work of a judge; see `evaluate`."""
        lane = await self._take(alone, request.domain, avoided)
        device = lane.device
        try:
            if alone is not Alone.NO:
                # Idle judges keep memory of a GPU: a context, and a share for their next candidates.
                others = device.idle if device.name is not None else []
                await asyncio.gather(*(judge.aclose() for judge in (lane.worker, *others)))
            result = await work(lane)
            self._trust(device)
            return result
        except DeviceFull as full:
            full.device = device.name or ""
            if alone is Alone.NO:
                self._note_full(device)
            raise
        except DeviceFault as fault:
            # Code of others could report a fault of a device that is well.
            if not request.domain:
                device.failed_tasks.add(request.task_sha256)
            self._suspect(device, str(fault))
            raise
        except JudgeDied as death:
            self._suspect(device, str(death))
            if alone is Alone.NO:
                raise
            failure: JudgeDied | MissingPrerequisite = death
        except MissingPrerequisite as missing:
            # Another GPU works or may work, so this one may be gone.
            if device.name is None or not (self._proven or len(self._devices) > 1):
                raise
            self._suspect(device, str(missing))
            failure = missing
        finally:
            self._give_back(lane)
        if device.examination is not None:
            await device.settled.wait()
        lacks_all = isinstance(failure, MissingPrerequisite) and not self._proven and bool(self.quarantine)
        if device.quarantine and not lacks_all:
            raise DeviceFault(f"GPU {device.name} failed: {device.quarantine}") from failure
        raise failure

    # --- lanes ------------------------------------------------------------------------------------------------------

    async def _take(self, alone: Alone, domain: str, avoided: str | None) -> _Lane:
        """A lane of a working device, in the order of the requests."""
        lane: asyncio.Future[_Lane] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiter(lane, alone, domain, avoided))
        self._hand_out()
        try:
            return await lane
        except asyncio.CancelledError:
            if lane.cancelled():
                # The cancelled request may have been the one that the others waited for.
                self._hand_out()
            elif lane.exception() is None:
                self._give_back(lane.result())
            raise

    def _hand_out(self) -> None:
        """Give free lanes to the requests that wait, in their order."""
        for device in self._devices:
            self._hand_out_reserved(device)
        while self._waiting and not self._is_taken:
            waiter = self._waiting[0]
            if waiter.lane.done():
                self._waiting.popleft()
                continue
            if self.quarantine:
                waiter.lane.set_exception(self._no_gpu_left())
                self._waiting.popleft()
                continue
            if waiter.alone is Alone.ON_MACHINE and self._n_busy:
                return
            usable = [
                device
                for device in self._devices
                if device.examination is None and device.reserved is None and not device.is_alone
            ]
            if waiter.alone is Alone.ON_DEVICE and usable:
                device = max(usable, key=lambda one: (one.memory_mib, one.name != waiter.avoided, -one.n_busy))
                device.reserved = waiter
                self._waiting.popleft()
                self._hand_out_reserved(device)
                continue
            free = [device for device in usable if device.n_free]
            if not free:
                return
            self._waiting.popleft()
            self._assign(max(free, key=lambda one: one.n_free), waiter)

    def _hand_out_reserved(self, device: _Device) -> None:
        """Give an empty device to the request that waits for that."""
        waiter = device.reserved
        if waiter is None:
            return
        if device.examination is not None:
            # Another device may be empty sooner.
            device.reserved = None
            self._waiting.appendleft(waiter)
        elif waiter.lane.done():
            device.reserved = None
        elif not device.n_busy:
            device.reserved = None
            self._assign(device, waiter)

    def _assign(self, device: _Device, waiter: _Waiter) -> None:
        device.n_free -= 1
        device.n_busy += 1
        device.emptied.clear()
        self._n_busy += 1
        device.is_alone = waiter.alone is not Alone.NO
        self._is_taken = waiter.alone is Alone.ON_MACHINE
        judge = _best_judge(device.idle, waiter.domain)
        device.idle.remove(judge)
        waiter.lane.set_result(_Lane(device, judge, waiter.alone))

    def _replace(self, lane: _Lane) -> None:
        """Let a spare judge of the device work while this one waits."""
        if not lane.is_replaced and lane.device.n_spare:
            lane.is_replaced = True
            lane.device.n_spare -= 1
            lane.device.n_free += 1
            self._hand_out()

    def _give_back(self, lane: _Lane) -> None:
        device = lane.device
        device.idle.append(lane.worker)
        if lane.is_replaced:
            device.n_spare += 1
        else:
            device.n_free += 1
        device.n_busy -= 1
        self._n_busy -= 1
        if not device.n_busy:
            device.emptied.set()
        if lane.alone is not Alone.NO:
            device.is_alone = False
        if lane.alone is Alone.ON_MACHINE:
            self._is_taken = False
        self._hand_out()

    # --- health -----------------------------------------------------------------------------------------------------

    def _trust(self, device: _Device) -> None:
        """Note a success of a device."""
        self._proven = True
        if device.examination is None:
            device.n_full = 0
            device.failed_tasks.clear()
            device.pause_s = _FIRST_PAUSE_S

    def _note_full(self, device: _Device) -> None:
        """Note that a candidate found too little memory beside others. A GPU that other programs use is examined, where
        candidates have another one."""
        device.n_full += 1
        if len(self._devices) > 1 and device.n_full >= _FULL_TO_EXAMINATION:
            self._suspect(device, "too little memory")

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
        device.n_full = 0
        device.examination = None
        device.settled.set()
        self._hand_out()

    async def _probe(self, device: _Device) -> str | None:
        """Reason of a failed probe, or None. Terminates the idle judges: their CUDA contexts may be corrupt."""
        if device.n_full >= _FULL_TO_EXAMINATION:
            return await self._probe_memory(device)
        judges = list(device.idle)
        await asyncio.gather(*(judge.aclose() for judge in judges))
        try:
            return await judges[-1].probe()
        except (InfrastructureError, OSError) as error:
            return " ".join(str(error).split())

    async def _probe_memory(self, device: _Device) -> str | None:
        """Whether other programs hold memory of a GPU, found out without its judges; None if not, or if it is
        unknown."""
        await device.emptied.wait()
        await asyncio.gather(*(judge.aclose() for judge in device.idle))
        assert device.name is not None
        share = await asyncio.to_thread(self._used_share, device.name)
        if share is None or share <= _OTHERS_SHARE:
            return None
        return f"other programs hold {share:.0%} of its memory"

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
