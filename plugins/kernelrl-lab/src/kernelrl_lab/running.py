"""Evaluates the kernels of a suite as a run evaluates them.

Their tasks are audited first, like the tasks of a training run: a task that an input overlay repairs is evaluated under
it, and no model is trained on a task in quarantine. Audits are kept in the cache.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.episodes import (
    CandidateEvaluator,
    EvaluationSpec,
    Registry,
    Turn,
    evaluate_kernel,
    read_evaluation_spec,
    with_timing,
)
from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.evaluators import (
    Evaluator,
    Finding,
    Outcome,
    Severity,
    Task,
    Verdict,
    audit_conditions,
    audit_key,
)
from kernelrl_core.api.tasks import annotate, append_audit, quarantine_reasons, read_audits
from kernelrl_lab.suite import SuiteKernel

__all__ = ["Report", "Result", "evaluate_suite_kernel", "lab_spec", "run", "timed_where_possible"]

_SETTINGS = ("evaluation.timing_trials=10",)
_AUDIT_S = 60.0


@attrs.frozen
class Result:
    """How the evaluation of a kernel ended."""

    kernel: SuiteKernel
    outcome: Outcome
    verdict: Verdict
    speedup: float | None
    """None unless the kernel is correct and was timed."""
    findings: tuple[Finding, ...] = ()
    message: str = ""
    quarantine: tuple[str, ...] = ()
    """Flags of the audit because of which no model is trained on the task."""
    skipped: str = ""
    """Why this machine cannot execute the kernel; empty if it can."""
    broken: str = ""
    """Why the task cannot be used; empty if it can."""
    seconds: float = 0.0
    """Duration of the evaluation, without waiting; 0 if the source alone decided."""

    @property
    def clean(self) -> bool:
        """Whether the kernel is correct, with verdict clean."""
        return self.outcome is Outcome.CORRECT and self.verdict is Verdict.CLEAN

    @property
    def ending(self) -> str:
        """One of `ENDINGS`, `clean`, `infra_error`, `skipped` or `broken`."""
        if self.skipped or self.broken:
            return "skipped" if self.skipped else "broken"
        if self.outcome is not Outcome.CORRECT:
            return self.outcome.value
        if self.verdict is not Verdict.CLEAN:
            return self.verdict.value
        hack = self.kernel.hack
        if hack is not None and self.quarantine:
            return "quarantined"
        if hack is not None and not hack.gains(self.speedup):
            return "no_gain"
        return "clean"

    @property
    def passed(self) -> bool:
        """Whether a hack has an expected ending, or an honest kernel is correct and clean."""
        return self.ending in (self.kernel.hack.expected if self.kernel.hack is not None else {"clean"})

    @property
    def causes(self) -> tuple[str, ...]:
        """Evidence of the findings that are no note; else the message, line by line."""
        evidence = tuple(f"{found.rule}: {found.evidence}" for found in self.serious)
        return evidence or tuple(filter(None, (self.skipped or self.broken or self.message).splitlines()))

    @property
    def executed(self) -> bool:
        """Whether the kernel has an outcome."""
        return not self.skipped and not self.broken

    @property
    def serious(self) -> tuple[Finding, ...]:
        """The findings that are no note."""
        return tuple(found for found in self.findings if found.severity is not Severity.NOTE)


@attrs.frozen
class Report:
    """How all evaluations ended."""

    results: tuple[Result, ...]

    @property
    def hacks(self) -> tuple[Result, ...]:
        """The executed hacks."""
        return tuple(result for result in self.results if result.kernel.hack is not None and result.executed)

    @property
    def honest(self) -> tuple[Result, ...]:
        """The executed honest kernels."""
        return tuple(result for result in self.results if result.kernel.hack is None and result.executed)

    @property
    def skipped(self) -> tuple[Result, ...]:
        """Kernels that this machine cannot execute."""
        return tuple(result for result in self.results if result.skipped)

    @property
    def passed(self) -> bool:
        """Whether every kernel passed that this machine can execute."""
        return all(result.passed for result in self.results if not result.skipped)


def run(
    kernels: Sequence[SuiteKernel],
    *,
    registry: Registry,
    device: str,
    evaluator: str = "local",
    overrides: Sequence[str] = (),
    on_result: Callable[[Result], None] | None = None,
) -> Report:
    """Evaluate kernels, as many concurrently as the evaluator allows.

    Args:
        device: `cpu` or `gpu`. On the CPU, Triton is executed by its interpreter.
        evaluator: name of an evaluator.
        overrides: evaluation keys as `KEY=VALUE`.
        on_result: called with each result, in the order in which the evaluations end.

    Raises:
        RecipeError: an override is wrong.
    """
    return asyncio.run(_run(kernels, registry, device, evaluator, overrides, on_result or (lambda result: None)))


async def _run(
    kernels: Sequence[SuiteKernel],
    registry: Registry,
    device: str,
    evaluator: str,
    overrides: Sequence[str],
    on_result: Callable[[Result], None],
) -> Report:
    results: dict[str, Result] = {}

    def end(found: Iterable[Result]) -> None:
        for result in found:
            results[result.kernel.id] = result
            on_result(result)

    for backend in sorted({kernel.backend for kernel in kernels}):
        group = [kernel for kernel in kernels if kernel.backend == backend]
        end(
            _skipped(kernel, f"is not executed on the {device.upper()}")
            for kernel in group
            if device not in kernel.devices
        )
        group = [kernel for kernel in group if device in kernel.devices]
        spec = lab_spec(backend, device, evaluator, overrides, registry)
        made = registry.make("evaluators", spec.evaluator)
        try:
            try:
                await made.start()
                judge = timed_where_possible(spec, overrides, made, registry, secrets.token_bytes(32))
            except MissingPrerequisite as error:
                end(_skipped(kernel, _reason(error)) for kernel in group)
                continue
            tasks, unusable = await _audited([kernel.task for kernel in group], judge.spec, made)
            keys = {kernel.id: kernel.task.sha256 for kernel in group}
            end(_broken(kernel, unusable[keys[kernel.id]]) for kernel in group if keys[kernel.id] in unusable)
            evaluations = [
                evaluate_suite_kernel(judge, kernel, tasks[keys[kernel.id]])
                for kernel in group
                if keys[kernel.id] in tasks
            ]
            for ended in asyncio.as_completed(evaluations):
                end([await ended])
        finally:
            await made.aclose()
    return Report(tuple(results[kernel.id] for kernel in kernels))


def lab_spec(backend: str, device: str, evaluator: str, overrides: Sequence[str], registry: Registry) -> EvaluationSpec:
    """How the kernels of a backend are evaluated; arguments as for `run`."""
    mode = {"mode": "interpreter" if device == "cpu" else "gpu"} if backend == "triton" else {}
    plain = {
        "backend": {"use": backend, **mode},
        "evaluator": {"use": evaluator},
        "checkers": {
            component.name: {"use": component.name}
            for component in registry.components("checkers")
            if component.name in ("source_rules", "evaluation_rules")
        },
    }
    stated = {override.partition("=")[0] for override in overrides}
    chosen = [*(one for one in _SETTINGS if one.partition("=")[0] not in stated), *overrides]
    return read_evaluation_spec(plain, chosen, registry=registry)


def timed_where_possible(
    spec: EvaluationSpec, overrides: Sequence[str], evaluator: Evaluator, registry: Registry, secret: bytes
) -> CandidateEvaluator:
    """Evaluates by a started evaluator, without a cache; times kernels if it can, unless an override decides.

    Raises:
        MissingPrerequisite: this machine lacks a prerequisite.
    """
    if not any(override.startswith("evaluation.timing=") for override in overrides):
        is_timed = not evaluator.why_untimed(spec.backend.use, attrs.asdict(spec.backend.options))
        spec = with_timing(spec, is_timed)
    return CandidateEvaluator.from_spec(spec, registry=registry, secret=secret, cache_dir=None, evaluator=evaluator)


async def _audited(
    found: Sequence[Task], spec: EvaluationSpec, evaluator: Evaluator
) -> tuple[dict[str, Task], dict[str, str]]:
    """By the hash of their sources: the tasks, with the results of their audits if the evaluator audits tasks, and the
    reasons why others cannot be used."""
    tasks = {task.sha256: task for task in found}
    unusable: dict[str, str] = {}
    path = cache_directory() / "lab_audits.jsonl"
    kept = read_audits(path) if path.exists() else []
    audits = {audit_key(audit.sha256, audit.conditions): audit for audit in kept if audit.unaudited is None}
    slots = asyncio.Semaphore(os.cpu_count() or 1)

    async def audit(key: str) -> None:
        conditions = audit_key(key, audit_conditions(spec.settings))
        async with slots:
            if conditions not in audits:
                try:
                    audits[conditions] = await evaluator.audit(tasks[key], spec.settings, _AUDIT_S)
                except UsageError as error:
                    unusable[key] = error.message
                    del tasks[key]
                    return
                append_audit(path, audits[conditions])
        tasks[key] = annotate(tasks[key], {key: audits[conditions]})

    if type(evaluator).audit is not Evaluator.audit:
        await asyncio.gather(*map(audit, [*tasks]))
    return tasks, unusable


async def evaluate_suite_kernel(judge: CandidateEvaluator, kernel: SuiteKernel, task: Task) -> Result:
    """Evaluate a kernel of a suite; an error of the evaluator is part of the result."""
    # Tasks with equal sources share an audit; each keeps its own id.
    task = attrs.evolve(task, id=kernel.task.id)
    turn: Any = None
    try:
        for _ in range(kernel.evaluations):
            turn = await evaluate_kernel(judge, task, kernel.source)
    except MissingPrerequisite as error:
        return _skipped(kernel, _reason(error))
    except UsageError as error:
        return _broken(kernel, error.message)
    return _result(kernel, turn, quarantine_reasons(task))


def _result(kernel: SuiteKernel, turn: Turn, quarantine: Sequence[str]) -> Result:
    compiled_only = turn.evaluation is not None and bool(turn.evaluation.checked)
    return Result(
        kernel=kernel,
        outcome=turn.outcome,
        verdict=turn.verdict,
        speedup=turn.speedup,
        findings=turn.findings,
        message=turn.message,
        quarantine=tuple(quarantine),
        skipped=turn.message if compiled_only else "",
        seconds=sum(turn.evaluation.seconds.values()) if turn.evaluation is not None else 0.0,
    )


def _reason(error: MissingPrerequisite) -> str:
    return "; ".join(error.message.splitlines())


def _broken(kernel: SuiteKernel, reason: str) -> Result:
    return Result(kernel, Outcome.INFRA_ERROR, Verdict.CLEAN, None, broken=reason)


def _skipped(kernel: SuiteKernel, reason: str) -> Result:
    return Result(kernel, Outcome.INFRA_ERROR, Verdict.CLEAN, None, skipped=reason)
