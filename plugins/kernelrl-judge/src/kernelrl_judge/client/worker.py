"""A judge process, controlled from the main process. Imports no torch."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

import cattrs

from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, EvaluationSettings, from_json, to_json
from kernelrl_judge.client.builds import Builds
from kernelrl_judge.client.confinement import (
    CONFINED_VARIABLES,
    cannot_confine,
    confined_arguments,
    start_variables,
)
from kernelrl_judge.client.judge_requests import JudgeRequests
from kernelrl_judge.device.faults import DeviceFault, DeviceFull
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.protocol import wire

__all__ = ["JudgeDied", "JudgeWorker"]

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 180.0
_GRACE_S = 660.0
"""Time beyond the limits of the phases, for example for the preparation of a toolchain."""
_QUEUE_S = 600.0
"""Time for which other judges may hold the device."""
_CANCEL_TIMEOUT_S = 15.0
_END_TIMEOUT_S = 3.0
_PROBE_TIMEOUT_S = 20.0
"""Time limit of the first reply to a probe. Each reply gives the limit of the next one."""
_MAX_REPLY_BYTES = 1 << 24
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_KEPT_BYTES = 4096
_MAX_LINE_CHARACTERS = 300
_MAX_TEXT_CHARACTERS = 4000

_Reply = Mapping[str, Any]
"""A message of the judge (`kernelrl_judge.judge.main`)."""


class JudgeDied(InfrastructureError):
    """The judge or its zygote ended or failed under a candidate.

    Args:
        killed: by SIGKILL, as the system ends processes when its memory is full.
    """

    def __init__(self, message: str, *, killed: bool = False, **others: Any) -> None:
        super().__init__(message, **others)
        self.killed = killed


class JudgeWorker:
    """A judge process, started on first use and restarted after it died. Processes one request at a time.

    A request of another domain ends the process, and a new one is started: no state of one domain is left to another.

    Args:
        environment: additional variables of the judge.
        builds: of this machine.
        confine: also confine a judge of the domain without a name, which serves the user's own tasks.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, builds: Builds | None = None, *, confine: bool = False
    ) -> None:
        self._environment = dict(environment or {})
        self._builds = builds or Builds(1)
        self._confine = confine
        self.domain = ""
        """Domain of the tasks that the process serves."""
        self._requests: JudgeRequests | None = None
        self._printed = b""
        """End of what a confined judge has printed."""
        self._reading_printed: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._ready: asyncio.Task[_Reply | None] | None = None
        """Waits for the start of the judge; None after the start."""

    @property
    def runs(self) -> bool:
        """Whether its process has been started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def evaluate(
        self, request: EvaluationRequest, runner: str, slow: Callable[[], None] = lambda: None, *, alone: bool = False
    ) -> Evaluation:
        """Evaluate one candidate. A cancellation of the call kills the candidate.

        Args:
            slow: called when the judge only waits for the candidate.
            alone: no other judge evaluates a candidate meanwhile.

        Raises:
            JudgeDied: a process of the judge ended or failed under the candidate.
            DeviceFull: the memory of the GPU does not suffice.
            DeviceFault: the GPU failed.
            UsageError: the task cannot be used.
            MissingPrerequisite: this machine lacks a requirement of the request.
        """
        reply = await self._replied(request, slow, runner=runner, alone=alone, reference_only=False)
        try:
            return from_json(Evaluation, reply["evaluation"])
        except (cattrs.BaseValidationError, KeyError, TypeError, AttributeError, ValueError):
            # The code of a task can send anything in the judge's name.
            await self.aclose()
            raise JudgeDied("the judge sent no evaluation") from None

    async def run_reference(self, request: EvaluationRequest, runner: str) -> None:
        """Run everything that an evaluation of a request runs in the judge, without its candidate.

        Raises:
            What `evaluate` raises, if the reference fails or a process of the judge does.
        """
        await self._replied(request, lambda: None, runner=runner, alone=True, reference_only=True)

    async def _replied(self, request: EvaluationRequest, slow: Callable[[], None], **order: Any) -> _Reply:
        """The reply to a request, if it is a result.

        Args:
            order: further fields of the message.
        """
        process = await self._started(request.domain)
        assert self._requests is not None
        self._requests.evaluating = request
        # In its own task, because the reply must be read completely even if the call is cancelled.
        reading = asyncio.create_task(self._evaluation(process, slow))
        try:
            await self._send(process, {"request": to_json(request), **order})
            reply = await asyncio.wait_for(asyncio.shield(reading), _limit_s(request.settings))
        except TimeoutError:
            reading.cancel()
            await self.aclose()
            raise JudgeDied(f"the judge did not reply in time{self._last_line()}") from None
        except asyncio.CancelledError:
            await asyncio.shield(self._cancel(process, reading))
            raise
        if reply is None:
            await self.aclose()
            killed = process.returncode == -signal.SIGKILL
            raise JudgeDied(f"the judge ended with status {process.returncode}{self._last_line()}", killed=killed)
        if "died" in reply:
            await self.aclose()
            raise JudgeDied(_text(reply["died"]))
        if "device_fault" in reply:
            # The judge's context on the device may be corrupt.
            await self.aclose()
            fault = DeviceFull if reply.get("full") else DeviceFault
            raise fault(_text(reply["device_fault"]))
        if "task_error" in reply:
            raise UsageError(_text(reply["task_error"]))
        if "missing" in reply:
            raise MissingPrerequisite(_text(reply["missing"]), fix=_text(reply.get("fix")))
        return reply

    async def probe(self, device: str = "cuda") -> str | None:
        """Probe the device. The judge is terminated if the device does not pass, or if the judge does not reply.

        Returns:
            The reason of the failure; None if the device passes.

        Raises:
            InfrastructureError: the judge does not start.
        """
        process = await self._started("")
        try:
            await self._send(process, {"probe": device})
            reason = await self._probe_result(process)
        except asyncio.CancelledError:
            await asyncio.shield(self.aclose())
            raise
        if reason is not None:
            await self.aclose()
        return reason

    async def aclose(self) -> None:
        """Terminate the judge and its descendants."""
        try:
            await self._end_process()
        finally:
            if self._requests is not None:
                self._requests.close()
                self._requests = None

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        ready, self._ready = self._ready, None
        if process is None or process.returncode is not None:
            return
        if ready is not None and not ready.done():
            # The judge reads its input only after the import of torch.
            ready.cancel()
            process.kill()
        # A judge cleans up and ends at the end of its input. A judge that hangs is killed.
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

    async def start(self, domain: str = "") -> None:
        """Start the judge, and do not wait until it has imported torch.

        Args:
            domain: of the tasks to come. A judge of another domain is ended.
        """
        if self.runs:
            if domain == self.domain:
                return
            await self.aclose()
        self.domain = domain
        confined = self._confine or bool(domain)
        if self._requests is not None:
            self._requests.close()
        self._requests = JudgeRequests(self._builds, self._environment.get("CUDA_VISIBLE_DEVICES", ""))
        channel = self._requests.theirs
        # Option -P: no file of the working directory, such as a candidate, is a module of the judge.
        command = [sys.executable, "-P", "-m", "kernelrl_judge.judge.main", str(channel.fileno())]
        if confined:
            command += confined_arguments()
        variables = self._variables()
        first_variables = start_variables(variables, (*_THREAD_VARIABLES, *self._environment))
        self._process = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE if confined else None,
            env=first_variables,
            limit=_MAX_REPLY_BYTES,
            start_new_session=True,
            pass_fds=(channel.fileno(),),
        )
        channel.close()
        if process.stderr is not None:
            self._printed = b""
            self._reading_printed = asyncio.create_task(self._read_printed(process.stderr))
        self._ready = asyncio.create_task(self._reply(process))
        await self._send(process, {**first_variables, **CONFINED_VARIABLES} if confined else variables)

    async def _read_printed(self, stream: asyncio.StreamReader) -> None:
        """Keep the end of what a confined judge prints: a task must not fill the terminal or a log."""
        while part := await stream.read(1 << 16):
            self._printed = (self._printed + part)[-_KEPT_BYTES:]

    def _last_line(self) -> str:
        """The last line that a confined judge has printed, as the end of a message."""
        lines = self._printed.decode("utf-8", "replace").split("\n")
        printable = ["".join(filter(str.isprintable, line)).strip() for line in lines]
        last = [line for line in printable if line][-1:]
        return f"; it printed last: {last[0][:_MAX_LINE_CHARACTERS]}" if last else ""

    async def _started(self, domain: str = "") -> asyncio.subprocess.Process:
        """
        Raises:
            InfrastructureError: the judge does not start.
            MissingPrerequisite: it cannot be confined.
        """
        await self.start(domain)
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
                raise InfrastructureError(
                    f"the judge did not start{self._last_line()}", fix="look above; kernelrl doctor", see="judge"
                )
            if ready["missing_layers"]:
                await self.aclose()
                raise cannot_confine(ready["missing_layers"])
            self._ready = None
        return process

    def _variables(self) -> dict[str, str]:
        """The environment of the judge after its start."""
        # torch creates its cache of compiled code even if it compiles nothing. Its default is in the directory for
        # temporary files, where it would remain.
        torch_cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(cache_directory() / "inductor")
        one_thread = dict.fromkeys(_THREAD_VARIABLES, "1")
        return {**os.environ, **one_thread, "TORCHINDUCTOR_CACHE_DIR": torch_cache, **self._environment}

    async def _cancel(self, process: asyncio.subprocess.Process, reading: asyncio.Task[_Reply | None]) -> None:
        """Let the judge drop its candidate, so that it can evaluate the next one; terminate a judge that does not."""
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

    async def _probe_result(self, process: asyncio.subprocess.Process) -> str | None:
        limit_s = _PROBE_TIMEOUT_S
        while True:
            try:
                reply = await asyncio.wait_for(self._reply(process), limit_s)
            except TimeoutError:
                return f"the probe did not go on within {limit_s:.0f} s"
            if reply is None:
                return "the judge ended during the probe"
            if "probed" in reply:
                reason: str | None = reply["probed"]
                return reason
            limit_s = reply["within_s"]

    async def _evaluation(self, process: asyncio.subprocess.Process, slow: Callable[[], None]) -> _Reply | None:
        """The last reply to a request for an evaluation; None if the judge ended."""
        while True:
            reply = await self._reply(process)
            if reply is None or "slow" not in reply:
                return reply
            slow()

    @staticmethod
    async def _reply(process: asyncio.subprocess.Process) -> _Reply | None:
        """The next reply; None if the judge ended."""
        assert process.stdout is not None
        try:
            header = await process.stdout.readexactly(wire.LENGTH.size)
            n_bytes = wire.LENGTH.unpack(header)[0]
            body = await process.stdout.readexactly(n_bytes) if n_bytes <= _MAX_REPLY_BYTES else b""
            reply = wire.unpack(body)
        except asyncio.IncompleteReadError:
            return None
        except (ValueError, RecursionError):
            reply = None
        # The code of a task can write to the judge's descriptors.
        return reply if isinstance(reply, dict) else {"died": "the judge sent a malformed reply"}


def _text(part: object) -> str:
    """A text of a judge, for a message."""
    return str(part)[:_MAX_TEXT_CHARACTERS]


def _limit_s(settings: EvaluationSettings) -> float:
    """Time limit of an evaluation in the judge."""
    # Trials and timing have a limit each, which grows on a busy machine.
    calls_s = 2 * LIMITS.patience * settings.timeout_s
    # The last of several builds starts within its limit. On a busy machine it may take four times the limit, and so may
    # the build of a control after it.
    builds_s = 9 * settings.build_timeout_s
    queue_s = _QUEUE_S if settings.timing else 0.0
    return calls_s + builds_s + queue_s + _GRACE_S
