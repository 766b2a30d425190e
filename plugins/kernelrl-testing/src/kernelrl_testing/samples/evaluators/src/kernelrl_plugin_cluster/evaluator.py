"""The evaluator `cluster`."""

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from typing import Any

from kernelrl_core.api.errors import InfrastructureError
from kernelrl_core.api.evaluators import (
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Evaluator,
    Task,
    TaskAudit,
    from_json,
    to_json,
)
from kernelrl_plugin_cluster.options import ClusterConfig


class Cluster(Evaluator):
    """Starts one process per candidate."""

    def __init__(self, config: ClusterConfig) -> None:
        self.capacity = config.capacity
        self._command, self._timing = config.command, config.timing

    def identity(self) -> str:
        return " ".join(self._command)

    def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
        return "" if self._timing else "the option timing is false"

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        return from_json(Evaluation, await self._call({"request": to_json(request)}))

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
        order = {"task": to_json(task), "settings": to_json(settings), "timeout_s": timeout_s}
        return from_json(TaskAudit, await self._call(order))

    async def _call(self, order: Mapping[str, Any]) -> Any:
        process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        try:
            output, errors = await process.communicate(json.dumps(order).encode())
        finally:
            if process.returncode is None:  # cancelled
                process.kill()
                await process.wait()
        if process.returncode:
            raise InfrastructureError(f"{self.identity()} failed: {errors.decode(errors='replace')[-500:]}")
        return json.loads(output)
