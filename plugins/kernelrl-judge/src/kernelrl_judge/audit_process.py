"""Audits a task in a process of its own. Imports no torch."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys

from kernelrl_core import codec
from kernelrl_core.audits import audit_conditions
from kernelrl_core.values import EvaluationSettings, Task, TaskAudit

__all__ = ["audit_task"]

_MEMORY_SHARE = 0.6


async def audit_task(task: Task, settings: EvaluationSettings, timeout_s: float, jobs: int = 1) -> TaskAudit:
    """Audit a task; one that hangs, takes all memory or ends its process is `unaudited`.

    Args:
        jobs: audits that share the memory of this machine.
    """
    request = {
        "task_id": task.id,
        "source": task.reference,
        "settings": codec.to_json(settings),
        "cpu_s": int(timeout_s) + 60,
        "memory_bytes": int(_free_memory_bytes() * _MEMORY_SHARE / jobs),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "kernelrl_judge.auditing",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        answer, said = await asyncio.wait_for(process.communicate(json.dumps(request).encode()), timeout_s)
    except TimeoutError:
        return _audit(task, settings, unaudited=f"not finished within {timeout_s:g} s")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    try:
        found = json.loads(answer)
    except ValueError:
        last = (said.decode("utf-8", "replace").strip().splitlines() or [""])[-1][:300]
        return _audit(task, settings, unaudited=f"its process ended with status {process.returncode} {last}".strip())
    return _audit(task, settings, **found)


def _audit(task: Task, settings: EvaluationSettings, **found: object) -> TaskAudit:
    conditions = audit_conditions(settings)
    return codec.from_json(TaskAudit, {"task_id": task.id, "sha256": task.sha256, "conditions": conditions, **found})


def _free_memory_bytes() -> int:
    with open("/proc/meminfo") as file:
        facts = dict(line.split(":") for line in file)
    return int(facts["MemAvailable"].split()[0]) * 1024
