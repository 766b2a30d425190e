"""A judge process as our process sees it. Imports no torch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, from_json, to_json
from kernelrl_judge.protocol import wire

__all__ = ["DeviceFault", "DeviceFull", "JudgeDied", "JudgeWorker"]

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 180.0
_GRACE_S = 660.0
_QUEUE_S = 600.0
_CANCEL_TIMEOUT_S = 15.0
_END_TIMEOUT_S = 3.0
_PROBE_TIMEOUT_S = 20.0
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_AT_START = ("PATH", "LC_", "LANG", "LD_", "PYTHON", "TORCH", "PYTORCH", "CUDA", "HIP", "ROC", "NVIDIA")
"""Beginnings of names of variables that interpreter and libraries read when they are loaded, and that are no secrets.
Candidates may find them in memory, since they run in descendants of the judge."""


class JudgeDied(InfrastructureError):
    """The judge or its zygote ended or failed under a candidate."""


class DeviceFault(InfrastructureError):
    """The device failed the judge itself."""


class DeviceFull(DeviceFault):
    """The device's memory did not suffice for the judge itself."""


class JudgeWorker:
    """One judge process, started on first use, restarted after it died. Takes one request at a time."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(environment or {})
        self._process: asyncio.subprocess.Process | None = None
        self._ready: asyncio.Task[Any] | None = None
        """Waits for the judge to start; None once it has."""

    async def evaluate(
        self, request: EvaluationRequest, runner: str, slow: Callable[[], None] = lambda: None, *, alone: bool = False
    ) -> Evaluation:
        """Judge one candidate; cancelling the call kills the candidate.

        Args:
            slow: called when the judge does nothing but wait for the candidate.
            alone: no other judge evaluates.

        Raises:
            JudgeDied: there is no verdict, because a process of ours ended or failed under the candidate.
            DeviceFull: there is none, because the GPU's memory does not suffice.
            DeviceFault: there is none, because the GPU fails.
            UsageError: the task cannot be used.
            MissingPrerequisite: this machine lacks what the request asks for.
        """
        process = await self._started()
        settings = request.settings
        message = {"request": to_json(request), "runner": runner, "alone": alone}
        # Trials and timing have a limit each; other judges may hold the device; a toolchain may be prepared first.
        # The last build of several begins within the limit. It may have four times the time on a busy machine, and so
        # may a control after it.
        limit = 2 * settings.timeout_s + 9 * settings.build_timeout_s + (_QUEUE_S if settings.timing else 0) + _GRACE_S
        # A task of its own: the answer must be read whole even when nobody waits for it any more.
        reading = asyncio.create_task(self._verdict(process, slow))
        try:
            await self._send(process, message)
            answer = await asyncio.wait_for(asyncio.shield(reading), limit)
        except TimeoutError:
            reading.cancel()
            await self.aclose()
            raise JudgeDied("the judge did not answer in time") from None
        except asyncio.CancelledError:
            await asyncio.shield(self._cancel(process, reading))
            raise
        if answer is None:
            await self.aclose()
            raise JudgeDied(f"the judge ended with status {process.returncode}")
        if "died" in answer:
            await self.aclose()
            raise JudgeDied(answer["died"])
        if "device_fault" in answer:
            # Its context may be beyond repair.
            await self.aclose()
            raise (DeviceFull if answer["full"] else DeviceFault)(answer["device_fault"])
        if "task_error" in answer:
            raise UsageError(answer["task_error"])
        if "missing" in answer:
            raise MissingPrerequisite(answer["missing"], fix=answer["fix"])
        return from_json(Evaluation, answer["evaluation"])

    async def probe(self, device: str = "cuda") -> str | None:
        """Why the device is unwell, or None. A judge whose device is unwell, or that does not answer, is ended.

        Raises:
            InfrastructureError: the judge does not start.
        """
        process = await self._started()
        try:
            await self._send(process, {"probe": device})
            reason = await self._probed(process)
        except asyncio.CancelledError:
            await asyncio.shield(self.aclose())
            raise
        if reason is not None:
            await self.aclose()
        return reason

    async def aclose(self) -> None:
        """End the judge and all below it."""
        process, self._process = self._process, None
        ready, self._ready = self._ready, None
        if process is None or process.returncode is not None:
            return
        if ready is not None and not ready.done():
            # It imports torch, and looks at its input only then.
            ready.cancel()
            process.kill()
        # The judge ends with its input, and cleans up; one that hangs is killed.
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), _END_TIMEOUT_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            try:
                await asyncio.wait_for(process.wait(), _END_TIMEOUT_S)
            except TimeoutError:
                logger.warning("judge %d does not end: the driver of a device holds it", process.pid)

    async def start(self) -> None:
        """Start the judge without waiting for it: its start takes as long as importing torch does."""
        if self._process is not None and self._process.returncode is None:
            return
        surroundings = self._surroundings()
        self._process = process = await asyncio.create_subprocess_exec(
            # Files of the working directory, a candidate named like a module among them, are no modules of the judge.
            *(sys.executable, "-P", "-m", "kernelrl_judge.judge.main"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={
                name: value
                for name, value in surroundings.items()
                if name.startswith(_AT_START) or name in (*_ONE_THREAD, *self._environment)
            },
            limit=1 << 24,
            start_new_session=True,
        )
        self._ready = asyncio.create_task(self._answer(process))
        await self._send(process, surroundings)

    async def _started(self) -> asyncio.subprocess.Process:
        await self.start()
        process, waiting = self._process, self._ready
        assert process is not None
        if waiting is not None:
            try:
                ready = await asyncio.wait_for(asyncio.shield(waiting), _START_TIMEOUT_S)
            except TimeoutError:
                ready = None
            except asyncio.CancelledError:
                await asyncio.shield(self.aclose())
                raise
            if ready is None:
                await self.aclose()
                raise InfrastructureError("the judge did not start", fix="look above; kernelrl doctor", see="judge")
            self._ready = None
        return process

    def _surroundings(self) -> dict[str, str]:
        # torch makes its directory of compiled code whether it compiles or not, and would leave it in that for scratch.
        compiled = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(cache_directory() / "inductor")
        one = dict.fromkeys(_ONE_THREAD, "1")
        return {**os.environ, **one, "TORCHINDUCTOR_CACHE_DIR": compiled, **self._environment}

    async def _cancel(self, process: asyncio.subprocess.Process, reading: asyncio.Task[Any]) -> None:
        """Let the judge drop its candidate, so that the process serves the next one; end it if it does not."""
        try:
            await self._send(process, {"cancel": True})
            if await asyncio.wait_for(reading, _CANCEL_TIMEOUT_S) is None:
                await self.aclose()
        except (TimeoutError, OSError):
            await self.aclose()

    @staticmethod
    async def _send(process: asyncio.subprocess.Process, message: Any) -> None:
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(wire.pack(message))
            await process.stdin.drain()

    async def _probed(self, process: asyncio.subprocess.Process) -> str | None:
        limit_s = _PROBE_TIMEOUT_S
        while True:
            try:
                answer = await asyncio.wait_for(self._answer(process), limit_s)
            except TimeoutError:
                return f"the probe did not go on within {limit_s:.0f} s"
            if answer is None:
                return "the judge ended during the probe"
            if "probed" in answer:
                reason: str | None = answer["probed"]
                return reason
            limit_s = answer["within_s"]

    async def _verdict(self, process: asyncio.subprocess.Process, slow: Callable[[], None]) -> Any | None:
        while True:
            answer = await self._answer(process)
            if answer is None or "slow" not in answer:
                return answer
            slow()

    @staticmethod
    async def _answer(process: asyncio.subprocess.Process) -> Any | None:
        assert process.stdout is not None
        try:
            header = await process.stdout.readexactly(wire.LENGTH.size)
            return wire.unpack(await process.stdout.readexactly(wire.LENGTH.unpack(header)[0]))
        except asyncio.IncompleteReadError:
            return None
