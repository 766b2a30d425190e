"""Audits of tasks in processes of their own. Imports no torch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys

from kernelrl_core.api.evaluators import EvaluationSettings, Task, TaskAudit, audit_conditions, from_json, to_json

__all__ = ["Auditor"]

_MEMORY_SHARE = 0.6
"""Share of the free memory that all audits together may use."""
_START_S = 180.0
"""Time limit of the start of the audit process."""
_MAX_REPLY_BYTES = 1 << 24


class Auditor:
    """An audit process, which loads torch once and forks for each task. Audits one task at a time.

    The process is started on first use (`kernelrl_judge.task.audit_process`).
    """

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float, jobs: int = 1) -> TaskAudit:
        """Audit a task. A task that hangs, exhausts memory or ends its process is `unaudited`.

        Args:
            jobs: number of audits that share the memory of this machine.
        """
        request = {
            "task_id": task.id,
            "source": task.reference,
            "settings": to_json(settings),
            "timeout_s": timeout_s,
            "memory_bytes": int(_free_memory_bytes() * _MEMORY_SHARE / jobs),
        }
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(json.dumps(request).encode() + b"\n")
                await process.stdin.drain()
            reply = await asyncio.wait_for(process.stdout.readline(), timeout_s + _START_S)
        except TimeoutError:
            reply = b""
        except BaseException:
            await self.aclose()
            raise
        if not reply:
            await self.aclose()
            return _audit(task, settings, unaudited=f"the audit process ended with status {process.returncode}")
        return _audit(task, settings, **json.loads(reply))

    async def aclose(self) -> None:
        """End the process and its forks."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            command = (sys.executable, "-P", "-m", "kernelrl_judge.task.audit_process")
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                limit=_MAX_REPLY_BYTES,
                start_new_session=True,
            )
        return self._process


def _audit(task: Task, settings: EvaluationSettings, **found: object) -> TaskAudit:
    conditions = audit_conditions(settings)
    return from_json(TaskAudit, {"task_id": task.id, "sha256": task.sha256, "conditions": conditions, **found})


def _free_memory_bytes() -> int:
    with open("/proc/meminfo") as file:
        facts = dict(line.split(":") for line in file)
    return int(facts["MemAvailable"].split()[0]) * 1024
