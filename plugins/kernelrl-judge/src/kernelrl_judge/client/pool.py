"""Judges for the CPU and for each GPU of a machine, as an evaluator uses them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.api.components import Use, registry
from kernelrl_core.api.config import visible_gpus
from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError
from kernelrl_core.api.evaluators import (
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Evaluator,
    Outcome,
    Task,
    TaskAudit,
    sha256_text,
)
from kernelrl_judge.backend import UNTIMED
from kernelrl_judge.client.auditor import Auditor
from kernelrl_judge.client.builds import Builds, backend_runner
from kernelrl_judge.client.confinement import require_layers
from kernelrl_judge.client.lanes import Alone, Lanes
from kernelrl_judge.client.worker import JudgeDied, JudgeWorker
from kernelrl_judge.device.faults import DeviceFull
from kernelrl_judge.findings import RULES

__all__ = ["JudgePool"]

_MAX_DEFAULT_GPU_WORKERS = 8
_CORES_OF_TIMED = 2
"""Cores that a judge and its runner keep busy while they time a candidate: one candidate of a GPU at a time."""


class JudgePool(Evaluator):
    """Evaluates candidates on this machine.

    A candidate waits in two queues: its extensions are compiled on the CPU, then a judge evaluates it, on a GPU if its
    backend uses one. If the judge dies, a fresh judge evaluates the candidate again while all other lanes are empty. If
    its GPU has too little memory beside other judges, a fresh judge evaluates it while those of one GPU are empty: the
    one with the most memory, or another one of the same size.

    If the memory does not suffice then either, the outcome is `out_of_memory`. If the judge dies again and the GPU
    passes its probe, a fresh judge runs the task's reference without the candidate. If it succeeds, the candidate ended
    the judges, and the outcome is `runtime_error`. Otherwise the task cannot be used, unless the reference of the
    backend's example ends a judge, too.

    Args:
        workers: number of candidates evaluated concurrently on the CPU; None: one per core.
        gpu_workers: number of candidates evaluated concurrently on each GPU; None: one per two cores, at most 8.
        build_workers: number of extensions compiled concurrently; None: one per core, less two for each GPU.
        confine: confine also the judges of the user's own tasks.
    """

    rules = RULES

    def __init__(
        self,
        workers: int | None = None,
        gpu_workers: int | None = None,
        build_workers: int | None = None,
        *,
        confine: bool = False,
    ) -> None:
        cores = len(os.sched_getaffinity(0))
        self._gpus = visible_gpus()
        workers = workers or cores
        gpu_workers = gpu_workers or min(_MAX_DEFAULT_GPU_WORKERS, max(1, cores // 2))
        # Compilers have a lower priority than everything else, so that they may use all other cores.
        self.builds = Builds(build_workers or max(1, cores - _CORES_OF_TIMED * len(self._gpus)))

        def judge(environment: Mapping[str, str]) -> JudgeWorker:
            return JudgeWorker(environment, self.builds, confine=confine)

        self.on_cpu = Lanes([None], workers, spare=workers, judge=judge)
        self.on_gpu = Lanes(self._gpus, gpu_workers, judge=judge)
        # More candidates than judges, so that no judge is idle while candidates are compiled.
        cpu_capacity = self.on_cpu.size + self.on_cpu.spare
        gpu_capacity = self.on_gpu.size + 2 * cores if self._gpus else 0
        self.capacity: int = cpu_capacity + gpu_capacity
        self._n_audits = gpu_workers if self._gpus else workers
        self._auditing = asyncio.Semaphore(self._n_audits)
        self._auditors: list[Auditor] = []

    def gpu_model(self) -> str:
        """See `Evaluator.gpu_model`; several models are separated by commas."""
        return ", ".join(sorted({gpu.model for gpu in self._gpus if gpu.model}))

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate one candidate.

        Raises:
            InfrastructureError: a judge failed, and the candidate is not the cause.
            UsageError: the task cannot be used.
            MissingPrerequisite: this machine lacks a requirement of the request.
        """
        request.require_intact()
        target, runner = backend_runner(request.backend)
        mode = runner.mode(request.backend_options, bool(self._gpus))
        lanes = self.on_gpu if mode == "gpu" else self.on_cpu
        if not lanes.size:
            raise MissingPrerequisite(
                f"backend {request.backend} needs a GPU, but the driver lists none",
                fix="use a machine with a GPU; if it has one, check CUDA_VISIBLE_DEVICES and the driver",
                see="gpu",
            )
        started = time.monotonic()
        await self.builds.compile(request, bool(self._gpus))
        built_s = time.monotonic() - started
        evaluation = await self._evaluate_in(lanes, request, target)
        seconds = {**evaluation.seconds, "build": evaluation.seconds.get("build", 0.0) + built_s}
        return attrs.evolve(evaluation, seconds=seconds)

    async def _evaluate_in(self, lanes: Lanes, request: EvaluationRequest, target: str) -> Evaluation:
        try:
            return await lanes.evaluate(request, target)
        except (JudgeDied, DeviceFull) as first:
            alone, avoided = Alone.ON_MACHINE, None
            if isinstance(first, DeviceFull):
                alone, avoided = Alone.ON_DEVICE, first.device
            if request.domain:
                # A task of others must not keep the lanes empty.
                alone = Alone.NO
            try:
                return await lanes.evaluate(request, target, alone=alone, avoided=avoided)
            except DeviceFull as full:
                message = (
                    "The GPU has too little memory for the reference and the kernel, also without other evaluations."
                )
                return Evaluation(Outcome.OUT_OF_MEMORY, message, full.message, final=False)
            except JudgeDied as second:
                evidence = f"{first.message}; {second.message}"
                await self._run_without_candidate(request, target, lanes, evidence)
                message = "The process that evaluates the kernel ended twice with it, and does not without it."
                return Evaluation(Outcome.RUNTIME_ERROR, message, evidence, final=False)

    async def _run_without_candidate(
        self, request: EvaluationRequest, target: str, lanes: Lanes, evidence: str
    ) -> None:
        """Run the reference of a candidate with which judges died.

        Args:
            evidence: messages of the deaths.

        Raises:
            UsageError: the task alone ends the judge, or it cannot be used.
            InfrastructureError: the reference of the backend's example ends the judge, too.
        """
        alone = Alone.NO if request.domain else Alone.ON_MACHINE
        try:
            await lanes.run_reference(request, target, alone=alone)
            return
        except JudgeDied as death:
            of_task = death
        example = registry().make("backends", Use(request.backend)).facts.example.reference
        trivial = attrs.evolve(request, task_id="example", task_source=example, task_sha256=sha256_text(example))
        try:
            await lanes.run_reference(trivial, target, alone=alone)
        except (JudgeDied, UsageError) as failure:
            raise InfrastructureError(
                f"judges fail without any kernel: {evidence}; with the example of backend {request.backend}: "
                f"{failure.message}",
                fix="look above for what the judge printed; kernelrl doctor",
                see="judge",
            ) from None
        fix = "call Model with get_inputs() in a Python program of your own, and look above for what it printed"
        if of_task.killed:
            fix = "make its inputs smaller, or use a machine with more memory: the system kills what fills its memory"
        raise UsageError(
            f"task {request.task_id}: its reference ends the process that runs it, without any kernel: "
            f"{of_task.message}",
            fix=fix,
            see="judge",
        )

    async def require_confinement(self) -> None:
        """See `Evaluator.require_confinement`."""
        await require_layers()

    async def expect(self, backend: str) -> None:
        """Start a judge; see `Evaluator.expect`."""
        _, runner = backend_runner(backend)
        uses_gpu = bool(self._gpus) and runner.mode({}, True) == "gpu"
        lanes = self.on_gpu if uses_gpu else self.on_cpu
        await lanes.start()

    def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
        """See `Evaluator.why_untimed`."""
        _, runner = backend_runner(backend)
        return UNTIMED.get(runner.mode(options, bool(self._gpus)), "")

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
        """Audit a task on the first GPU, or on the CPU, confined if it has a domain; see `Evaluator.audit`."""
        async with self._auditing:
            auditor = self._auditors.pop() if self._auditors else Auditor(self._gpus[0].id if self._gpus else "")
            try:
                return await auditor.audit(task, settings, timeout_s, self._n_audits)
            finally:
                self._auditors.append(auditor)

    async def equal_tasks(self, tasks: Sequence[Task]) -> Mapping[str, tuple[str, ...]]:
        """Compare tasks by their outputs, in sandboxes on the CPU; see `Evaluator.equal_tasks`."""
        from kernelrl_judge.behaviour.equality import equal_among
        from kernelrl_judge.behaviour.runner import ReferenceRunner

        sources = {task.sha256: task.reference for task in tasks}

        def compare() -> Mapping[str, tuple[str, ...]]:
            with ReferenceRunner() as runner:
                return equal_among(runner, sources)

        return await asyncio.to_thread(compare)

    async def aclose(self) -> None:
        """Terminate all judges, zygotes, runners and audits."""
        auditors = [auditor.aclose() for auditor in self._auditors]
        await asyncio.gather(self.on_cpu.aclose(), self.on_gpu.aclose(), *auditors)
