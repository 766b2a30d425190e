"""Audits of tasks in processes of their own. Imports no torch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import Any

import cattrs

from kernelrl_core.api.evaluators import EvaluationSettings, Task, TaskAudit, audit_conditions, from_json, to_json
from kernelrl_judge.client.confinement import CONFINED_VARIABLES, cannot_confine, confined_arguments, start_variables

__all__ = ["Auditor"]

_MEMORY_SHARE = 0.6
"""Share of the free memory that all audits together may use."""
_START_S = 180.0
"""Time limit of the start of the audit process."""
_MAX_REPLY_BYTES = 1 << 24
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Auditor:
    """An audit process, which loads torch once and forks for each task. Audits one task at a time.

    The process is started on first use (`kernelrl_judge.task.audit_process`). It is confined for tasks of a domain, and
    serves one domain: for a task of another one, it is ended and started again.

    Args:
        gpu: the GPU that a confined process sees; empty: none.
    """

    def __init__(self, gpu: str = "") -> None:
        self._gpu = gpu
        self._process: asyncio.subprocess.Process | None = None
        self._domain = ""

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float, jobs: int = 1) -> TaskAudit:
        """Audit a task. A task that hangs, exhausts memory or ends its process is `unaudited`.

        Args:
            jobs: number of audits that share the memory of this machine.

        Raises:
            MissingPrerequisite: the task has a domain, and the process cannot be confined.
        """
        request = {
            "task_id": task.id,
            "source": task.reference,
            "settings": to_json(settings),
            "timeout_s": timeout_s,
            "memory_bytes": int(_free_memory_bytes() * _MEMORY_SHARE / jobs),
        }
        process = await self._started(task.domain)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(json.dumps(request).encode() + b"\n")
                await process.stdin.drain()
            reply = await asyncio.wait_for(process.stdout.readline(), timeout_s + _START_S)
        except (TimeoutError, ValueError):  # no line, or one that is too long
            reply = b""
        except BaseException:
            await self.aclose()
            raise
        if not reply:
            await self.aclose()
            return _audit(task, settings, unaudited=f"the audit process ended with status {process.returncode}")
        try:
            return _audit(task, settings, **json.loads(reply))
        except (ValueError, TypeError, cattrs.BaseValidationError):
            # A task of others can write anything in place of its audit.
            await self.aclose()
            return _audit(task, settings, unaudited="the reply of the audit process is not an audit")

    async def aclose(self) -> None:
        """End the process and its forks."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def _started(self, domain: str) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None and domain == self._domain:
            return self._process
        await self.aclose()
        self._domain = domain
        command = [sys.executable, "-P", "-m", "kernelrl_judge.task.audit_process"]
        variables = {**os.environ, **_ONE_THREAD}
        if domain:
            command += confined_arguments()
            variables = {**start_variables(variables, [*_ONE_THREAD]), **CONFINED_VARIABLES}
            variables["CUDA_VISIBLE_DEVICES"] = self._gpu
        self._process = process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=variables,
            limit=_MAX_REPLY_BYTES,
            start_new_session=True,
        )
        if domain:
            await self._require_layers(process)
        return process

    async def _require_layers(self, process: asyncio.subprocess.Process) -> None:
        """
        Raises:
            MissingPrerequisite: a confined process lacks isolation layers.
        """
        assert process.stdout is not None
        try:
            first: Any = json.loads(await asyncio.wait_for(process.stdout.readline(), _START_S))
            missing = [str(layer) for layer in first["missing_layers"]]
        except (TimeoutError, ValueError):  # it has ended
            missing = ["mount_namespace"]
        except BaseException:
            await self.aclose()
            raise
        if missing:
            await self.aclose()
            raise cannot_confine(missing)


def _audit(task: Task, settings: EvaluationSettings, **found: object) -> TaskAudit:
    conditions = audit_conditions(settings)
    return from_json(TaskAudit, {"task_id": task.id, "sha256": task.sha256, "conditions": conditions, **found})


def _free_memory_bytes() -> int:
    with open("/proc/meminfo") as file:
        facts = dict(line.split(":") for line in file)
    return int(facts["MemAvailable"].split()[0]) * 1024
