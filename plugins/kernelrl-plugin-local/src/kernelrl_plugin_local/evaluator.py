"""The evaluator `local`: judges on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelrl_core.api.evaluators import (
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Evaluator,
    Task,
    TaskAudit,
)
from kernelrl_judge.client.pool import JudgePool
from kernelrl_judge.protocol.findings import RULES
from kernelrl_plugin_local.config import LocalConfig

__all__ = ["LocalEvaluator"]


class LocalEvaluator(Evaluator):
    """Evaluates candidates by the judges of this machine; see `Evaluator` and `kernelrl_judge.client.pool`."""

    rules = RULES

    def __init__(self, config: LocalConfig) -> None:
        self._pool = JudgePool(config.workers, config.gpu_workers, config.build_workers)
        self.capacity = self._pool.capacity

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """See `JudgePool.evaluate`."""
        return await self._pool.evaluate(request)

    async def expect(self, backend: str) -> None:
        """Start a judge; see `Evaluator.expect`."""
        await self._pool.expect(backend)

    def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
        """See `Evaluator.why_untimed`."""
        return self._pool.why_untimed(backend, options)

    def gpu_model(self) -> str:
        """See `Evaluator.gpu_model`."""
        return self._pool.gpu_model

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
        """See `Evaluator.audit`."""
        return await self._pool.audit(task, settings, timeout_s)

    async def aclose(self) -> None:
        """End all judges, zygotes, runners and audits."""
        await self._pool.aclose()
