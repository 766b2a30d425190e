"""Judges for the CPU and for each GPU of a machine, as an evaluator uses them."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kernelrl_core.api import API_VERSION
from kernelrl_core.api.components import Use, registry
from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite
from kernelrl_core.api.evaluators import (
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Outcome,
    Task,
    TaskAudit,
    sha256_text,
)
from kernelrl_judge.client.auditor import Auditor
from kernelrl_judge.client.lanes import Lanes, visible_gpus
from kernelrl_judge.client.worker import DeviceFull, JudgeDied
from kernelrl_judge.runner.backend import UNTIMED

if TYPE_CHECKING:
    from kernelrl_judge.build.service import BuildService

__all__ = ["JudgePool"]

logger = logging.getLogger(__name__)

_ENDED_TWICE = "The process that evaluates the kernel ended twice with it, and does not with other kernels."
_MAX_DEFAULT_GPU_WORKERS = 8


class JudgePool:
    """Evaluates candidates on this machine.

    A candidate passes two queues. Its extensions are compiled on the CPU. Then a judge evaluates it, on a GPU if its
    backend uses one. If the judge dies, or its GPU has too little memory beside other judges, a fresh one evaluates the
    candidate again while all other lanes are empty. If that dies as well and the GPU passes its probe, a fresh one
    evaluates a control, the backend's example kernel. If it can, the candidate ended the judges, and the outcome is
    `runtime_error`.

    Args:
        workers: candidates evaluated concurrently on the CPU; None: one per core.
        gpu_workers: candidates evaluated concurrently on each GPU; None: one per two cores, at most 8.
        build_workers: extensions compiled concurrently; None: one per core that is not reserved for a judge of a GPU.
    """

    def __init__(
        self, workers: int | None = None, gpu_workers: int | None = None, build_workers: int | None = None
    ) -> None:
        cores = len(os.sched_getaffinity(0))
        self._gpus = visible_gpus()
        workers = workers or cores
        self._on_cpu = Lanes([None], workers, spare=workers)
        gpu_workers = gpu_workers or min(_MAX_DEFAULT_GPU_WORKERS, max(1, cores // 2))
        self._on_gpu = Lanes(self._gpus, gpu_workers)
        # A judge that times a candidate needs a core of its own.
        self._compiling = asyncio.Semaphore(build_workers or max(1, cores - self._on_gpu.size))
        # More candidates than judges, so that no judge is idle while candidates are compiled.
        self.capacity: int = (
            self._on_cpu.size + self._on_cpu.spare + (self._on_gpu.size + 2 * cores if self._gpus else 0)
        )
        self._audits = gpu_workers if self._gpus else workers
        self._auditing = asyncio.Semaphore(self._audits)
        self._auditors: list[Auditor] = []
        self._store = cache_directory() / "builds"
        self._languages: set[str] = set()
        """Of which the first build has begun."""
        self._runners: dict[str, tuple[str, Any]] = {}

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate one candidate.

        Raises:
            InfrastructureError: a judge failed for a reason that is not the candidate's.
            UsageError: the task cannot be used.
            MissingPrerequisite: this machine lacks a requirement of the request.
        """
        _check(request)
        target, runner = self._runner(request.backend)
        mode = runner.mode(request.backend_options, bool(self._gpus))
        lanes = self._on_gpu if mode == "gpu" else self._on_cpu
        if not lanes.size:
            raise MissingPrerequisite(
                f"backend {request.backend} needs a GPU, but the driver lists none",
                fix="use a machine with a GPU; if it has one, check CUDA_VISIBLE_DEVICES and the driver",
            )
        spec = runner.toolchain(request.backend_options, mode)
        await self._compile(request, spec)
        return await self._evaluate(request, target, lanes)

    async def _evaluate(self, request: EvaluationRequest, target: str, lanes: Lanes) -> Evaluation:
        """Evaluate a candidate whose extensions are built, again where its judge dies."""
        try:
            return await lanes.evaluate(request, target)
        except (JudgeDied, DeviceFull) as first:
            try:
                return await lanes.evaluate_alone(request, target)
            except JudgeDied as second:
                evidence = f"{first.message}; {second.message}"
                await self._evaluate_control(request, target, lanes, evidence)
                return Evaluation(Outcome.RUNTIME_ERROR, _ENDED_TWICE, evidence, final=False)

    async def _evaluate_control(self, request: EvaluationRequest, target: str, lanes: Lanes, evidence: str) -> None:
        """Evaluate the example kernel of a backend as its candidate would have been.

        Args:
            evidence: how the candidate's judges died.

        Raises:
            InfrastructureError: the judge cannot evaluate that either.
        """
        example = registry().make("backends", Use(request.backend)).facts.example
        control = attrs.evolve(
            request,
            task_id="control",
            task_source=example.reference,
            task_sha256=sha256_text(example.reference),
            source=example.kernel,
            source_sha256=sha256_text(example.kernel),
            kernels=(),
            kernels_complete=False,
            suspect_rules=(),
        )
        try:
            found = await lanes.evaluate_alone(control, target)
        except JudgeDied as error:
            raise InfrastructureError(
                f"judges die under any kernel of backend {request.backend}: {evidence}; {error.message}",
                fix="look above for what the judge printed; kernelrl doctor",
            ) from error
        if found.outcome is not Outcome.CORRECT and not found.checked:
            raise InfrastructureError(
                f"judges died under a candidate ({evidence}), and the example kernel of backend {request.backend} ends "
                f"as {found.outcome.value}: {found.message}",
                fix="kernelrl doctor",
            )

    async def expect(self, backend: str) -> None:
        """Start a judge; see `kernelrl_core.api.evaluators.Evaluator.expect`."""
        on_gpu = bool(self._gpus) and self._runner(backend)[1].mode({}, True) == "gpu"
        await (self._on_gpu if on_gpu else self._on_cpu).start()

    def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
        """See `Evaluator.why_untimed`."""
        return UNTIMED.get(self._runner(backend)[1].mode(options, bool(self._gpus)), "")

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
        """Audit a task on the first GPU, or on the CPU; see `Evaluator.audit`."""
        async with self._auditing:
            auditor = self._auditors.pop() if self._auditors else Auditor()
            try:
                return await auditor.audit(task, settings, timeout_s, self._audits)
            finally:
                self._auditors.append(auditor)

    async def aclose(self) -> None:
        """Terminate all judges, zygotes, runners and audits."""
        auditors = [auditor.aclose() for auditor in self._auditors]
        await asyncio.gather(self._on_cpu.aclose(), self._on_gpu.aclose(), *auditors)

    async def _compile(self, request: EvaluationRequest, spec: Any) -> None:
        """Build the extensions that can be read from the source; the judge builds the others on request."""
        if spec is None:
            return
        # Patterns of text that this module prepares take longer than most commands have.
        from kernelrl_judge.build.calls import find_inline_calls
        from kernelrl_judge.build.survey import precompiled_headers

        calls = find_inline_calls(request.source)
        language = spec["language"]
        if calls and language not in self._languages and not spec.get("device_only"):
            self._languages.add(language)
            if not await asyncio.to_thread(precompiled_headers, language):
                logger.warning("the first build precompiles PyTorch's headers, once: 1 to 3 minutes")

        async def build(call: Any) -> None:
            async with self._compiling:
                await self._builds.prebuild(call, spec, request.settings)

        await asyncio.gather(*(build(call) for call in calls if call.complete))

    @functools.cached_property
    def _builds(self) -> BuildService:
        from kernelrl_judge.build.service import BuildService

        return BuildService(self._store)

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
            f"the request has API version {request.api_version}, this evaluator has {API_VERSION}"
        )
    if not _sound(request.source, request.source_sha256) or not _sound(request.task_source, request.task_sha256):
        raise InfrastructureError("a source of the request does not match its hash")
