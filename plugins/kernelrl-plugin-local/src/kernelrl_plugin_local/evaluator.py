"""The evaluator `local`: a pool of judge processes on this machine."""

from __future__ import annotations

import asyncio
import os

from kernelrl_core.errors import InfrastructureError
from kernelrl_core.registry import registry
from kernelrl_core.values import Evaluation, EvaluationRequest, Finding, Outcome, Severity, sha256_text
from kernelrl_core.version import API_VERSION
from kernelrl_judge.worker import JudgeDied, JudgeWorker
from kernelrl_plugin_local.config import LocalConfig

__all__ = ["LocalEvaluator"]


class LocalEvaluator:
    """Judges candidates on this machine; see `kernelrl_core.kinds.Evaluator`.

    A judge that dies under a candidate is replaced, and that candidate runs once more while nothing else does. A second
    death is the candidate's doing: `hacked`.
    """

    def __init__(self, config: LocalConfig) -> None:
        self.capacity = config.workers or len(os.sched_getaffinity(0))
        self._idle = [JudgeWorker() for _ in range(self.capacity)]
        self._free = asyncio.Semaphore(self.capacity)
        self._alone = asyncio.Lock()
        self._runners: dict[str, str] = {}

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Judge one candidate.

        Raises:
            InfrastructureError: a judge could not do its work, for a reason that is not the candidate's.
            UsageError: the task cannot be used.
            MissingPrerequisite: this machine lacks what the request asks for.
        """
        _check(request)
        runner = self._runner(request.backend)
        try:
            return await self._on_a_worker(request, runner)
        except JudgeDied as first:
            async with self._alone:
                for _ in range(self.capacity):
                    await self._free.acquire()
                try:
                    return await self._idle[-1].evaluate(request, runner)
                except JudgeDied as second:
                    evidence = f"ended its judge twice: {first.message}; {second.message}"
                    finding = Finding("judge_death", Severity.HACK, evidence, checker="judge")
                    return Evaluation(
                        Outcome.HACKED, "The process disturbed its surroundings.", evidence, findings=(finding,)
                    )
                finally:
                    for _ in range(self.capacity):
                        self._free.release()

    async def aclose(self) -> None:
        """End every judge, zygote and runner."""
        await asyncio.gather(*(worker.aclose() for worker in self._idle))

    async def _on_a_worker(self, request: EvaluationRequest, runner: str) -> Evaluation:
        async with self._free:
            worker = self._idle.pop()
            try:
                return await worker.evaluate(request, runner)
            finally:
                self._idle.append(worker)

    def _runner(self, backend: str) -> str:
        if backend not in self._runners:
            component = registry().find("backends", backend)
            self._runners[backend] = str(component.load().runner)
        return self._runners[backend]


def _check(request: EvaluationRequest) -> None:
    if request.api_version != API_VERSION:
        raise InfrastructureError(
            f"the request was made by kernelrl {request.api_version}, this evaluator is of {API_VERSION}"
        )
    if sha256_text(request.source) != request.source_sha256 or sha256_text(request.task_source) != request.task_sha256:
        raise InfrastructureError("source and hash of the request do not belong together")
