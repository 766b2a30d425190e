"""The evaluator `local`: judge processes for the processor and for each GPU of this machine."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import os
from typing import Any

from kernelrl_core.api import API_VERSION
from kernelrl_core.api.components import registry
from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite
from kernelrl_core.api.evaluators import (
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Evaluator,
    Finding,
    Outcome,
    Severity,
    Task,
    TaskAudit,
    sha256_text,
)
from kernelrl_judge import processors
from kernelrl_judge.audit_process import Auditor
from kernelrl_judge.building.calls import find_inline_calls
from kernelrl_judge.building.service import BuildService
from kernelrl_judge.worker import JudgeDied
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.lanes import Lanes, visible_gpus

__all__ = ["LocalEvaluator"]

logger = logging.getLogger(__name__)


class LocalEvaluator(Evaluator):
    """Judges candidates on this machine; see `Evaluator`.

    A candidate goes through two queues: its extensions are compiled on the processor, then a judge takes it, on a GPU
    where its backend runs on one. A judge that dies under a candidate is replaced, and that candidate runs once more
    while nothing else does. A second death on a GPU that is well is the candidate's doing: `hacked`.
    """

    def __init__(self, config: LocalConfig) -> None:
        cores = len(os.sched_getaffinity(0))
        self._gpus = visible_gpus()
        workers = config.workers or cores
        self._on_cpu = Lanes([None], workers, spare=workers)
        apart = processors.surroundings(len(self._gpus)) if self._gpus else {}
        self._on_gpu = Lanes(self._gpus, config.gpu_workers, surroundings=apart)
        # A judge that times needs a core of its own.
        self._compiling = asyncio.Semaphore(config.build_workers or max(1, cores - self._on_gpu.size))
        # What is being compiled must not keep the judges idle.
        self.capacity = self._on_cpu.size + self._on_cpu.spare + (self._on_gpu.size + 2 * cores if self._gpus else 0)
        self._audits = config.gpu_workers if self._gpus else workers
        self._auditing = asyncio.Semaphore(self._audits)
        self._auditors: list[Auditor] = []
        self._store = cache_directory() / "builds"
        self._builds = BuildService(self._store, apart)
        self._announced = False
        self._runners: dict[str, tuple[str, Any]] = {}

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Judge one candidate.

        Raises:
            InfrastructureError: a judge could not do its work, for a reason that is not the candidate's.
            UsageError: the task cannot be used.
            MissingPrerequisite: this machine lacks what the request asks for.
        """
        _check(request)
        target, half = self._runner(request.backend)
        mode = half.mode(request.backend_options, bool(self._gpus))
        lanes = self._on_gpu if mode == "gpu" else self._on_cpu
        if not lanes.size:
            raise MissingPrerequisite(
                f"backend {request.backend} needs a GPU, and the driver shows none",
                fix="use a machine with a GPU; where there is one, look at CUDA_VISIBLE_DEVICES, and at its driver",
            )
        await self._compile(request, half.toolchain(request.backend_options, mode))
        try:
            return await lanes.evaluate(request, target)
        except JudgeDied as first:
            try:
                return await lanes.evaluate_alone(request, target)
            except JudgeDied as second:
                evidence = f"ended its judge twice: {first.message}; {second.message}"
                finding = Finding("judge_death", Severity.HACK, evidence, checker="judge")
                return Evaluation(
                    Outcome.HACKED, "The process disturbed its surroundings.", evidence, findings=(finding,)
                )

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
        """Audit a task on the first GPU, or on the processor; see `Evaluator.audit`."""
        async with self._auditing:
            auditor = self._auditors.pop() if self._auditors else Auditor()
            try:
                return await auditor.audit(task, settings, timeout_s, self._audits)
            finally:
                self._auditors.append(auditor)

    async def aclose(self) -> None:
        """End every judge, zygote and runner, and every audit."""
        auditors = [auditor.aclose() for auditor in self._auditors]
        await asyncio.gather(self._on_cpu.aclose(), self._on_gpu.aclose(), *auditors)

    async def _compile(self, request: EvaluationRequest, spec: Any) -> None:
        """Build what can be read off the source; a judge builds the rest when the candidate asks for it."""
        if spec is None:
            return
        calls = [call for call in find_inline_calls(request.source) if call.complete]
        if calls:
            self._announce_preparation()

        async def build(call: Any) -> None:
            async with self._compiling:
                await self._builds.prebuild(call, spec, request.settings)

        await asyncio.gather(*map(build, calls))

    def _announce_preparation(self) -> None:
        """Say why the very first build takes so long."""
        if self._announced:
            return
        self._announced = True
        if not any(self._store.glob("toolchains/*/*/*.gch")):
            logger.warning("the first build prepares PyTorch's headers for the compiler, once: about half a minute")

    def _runner(self, backend: str) -> tuple[str, Any]:
        if backend not in self._runners:
            target = str(registry().load("backends", backend).runner)
            module, _, attribute = target.partition(":")
            self._runners[backend] = target, getattr(importlib.import_module(module), attribute)()
        return self._runners[backend]


@functools.lru_cache(maxsize=1024)
def _sound(source: str, source_sha256: str) -> bool:
    return sha256_text(source) == source_sha256


def _check(request: EvaluationRequest) -> None:
    if request.api_version != API_VERSION:
        raise InfrastructureError(
            f"the request was made by kernelrl {request.api_version}, this evaluator is of {API_VERSION}"
        )
    if not _sound(request.source, request.source_sha256) or not _sound(request.task_source, request.task_sha256):
        raise InfrastructureError("source and hash of the request do not belong together")
