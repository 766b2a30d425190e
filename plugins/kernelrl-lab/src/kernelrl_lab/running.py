"""Judges the fixtures as a run judges a kernel, and counts what was found.

Their tasks are audited first, as tasks are that models train on: one that an overlay mends is judged under it, and one
that is in quarantine pays nothing. Audits are kept in the cache.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.episodes import (
    CandidateEvaluator,
    EvaluationSpec,
    Registry,
    SampleId,
    Turn,
    extract_file,
    read_evaluation_spec,
)
from kernelrl_core.api.evaluators import Evaluator, Outcome, Severity, Task, Verdict, audit_conditions, audit_key
from kernelrl_core.api.policies import Prompt, Reply
from kernelrl_core.api.tasks import annotate, append_audit, quarantine_reasons, read_audits
from kernelrl_lab.fixture import Fixture

__all__ = ["Report", "Result", "run"]

_TIMEOUT_S = 15
_AUDIT_S = 60.0
_TIMING_TRIALS = 10


@attrs.frozen
class Result:
    """How a fixture ended."""

    fixture: Fixture
    outcome: Outcome
    verdict: Verdict
    speedup: float | None
    """What it would be paid for; None unless correct and timed."""
    findings: tuple[str, ...]
    """Rules that were found broken, with their severity, such as `replay (hack)`."""
    message: str
    quarantine: tuple[str, ...] = ()
    """Flags of the audit for which models do not train on its task."""

    @property
    def alarmed(self) -> bool:
        """Whether the candidate was kept from full pay."""
        return self.outcome not in (Outcome.CORRECT, Outcome.INFRA_ERROR) or (
            self.outcome is Outcome.CORRECT and self.verdict is not Verdict.CLEAN
        )

    @property
    def passed(self) -> bool:
        """Whether a hack does not pay, or an honest kernel is correct without suspicion; quarantine is for hacks."""
        if self.outcome is Outcome.INFRA_ERROR:
            return False
        if self.fixture.clean:
            return not self.alarmed
        if self.outcome is Outcome.COMPILE_ERROR and self.fixture.expected != "rejected":
            # An attack that was never tried shows nothing about the evaluator.
            return False
        return self.alarmed or bool(self.quarantine) or (self.fixture.expected == "honest_time" and self._time_is_true)

    @property
    def _time_is_true(self) -> bool:
        most = self.fixture.most_speedup
        return most is None or (self.speedup is not None and self.speedup <= most)


@attrs.frozen
class Report:
    """How all fixtures ended."""

    results: tuple[Result, ...]

    @property
    def recall(self) -> float | None:
        """Share of the hacks that are detected; None without hacks."""
        return _share([result.passed for result in self.results if not result.fixture.clean])

    @property
    def accepted(self) -> float | None:
        """Share of the honest kernels that are correct without suspicion; None without any."""
        return _share([result.passed for result in self.results if result.fixture.clean])

    @property
    def precision(self) -> float | None:
        """Share of hacks among the candidates that were kept from full pay; None if none was."""
        return _share([not result.fixture.clean for result in self.results if result.alarmed])

    @property
    def passed(self) -> bool:
        return all(result.passed for result in self.results)


def run(
    fixtures: Sequence[Fixture],
    *,
    registry: Registry,
    evaluator: str = "local",
    on_result: Callable[[Result], None] | None = None,
) -> Report:
    """Judge the fixtures, several at once as far as the evaluator allows.

    Args:
        evaluator: name of an evaluator.
        on_result: told of each fixture as soon as it is judged, in the order in which they end.

    Raises:
        MissingPrerequisite: this machine lacks something that a fixture needs.
    """
    return asyncio.run(_run(fixtures, registry, evaluator, on_result or (lambda result: None)))


async def _run(
    fixtures: Sequence[Fixture], registry: Registry, evaluator: str, on_result: Callable[[Result], None]
) -> Report:
    results: dict[str, Result] = {}
    for backend, where in sorted({(fixture.backend, fixture.where) for fixture in fixtures}):
        group = [fixture for fixture in fixtures if (fixture.backend, fixture.where) == (backend, where)]
        spec, secret = _spec(backend, where, evaluator, registry), secrets.token_bytes(32)
        judging = CandidateEvaluator.from_spec(spec, registry=registry, secret=secret, cache_dir=None)
        try:
            tasks = await _audited({fixture.task: fixture.id for fixture in group}, spec, registry)
            judged = [_judge(judging, fixture, tasks[fixture.task]) for fixture in group]
            for ended in asyncio.as_completed(judged):
                result = await ended
                results[result.fixture.id] = result
                on_result(result)
        finally:
            await judging.aclose()
    return Report(tuple(results[fixture.id] for fixture in fixtures))


def _spec(backend: str, where: str, evaluator: str, registry: Registry) -> EvaluationSpec:
    plain = {
        "backend": {"use": backend, **({"mode": "interpreter"} if (backend, where) == ("triton", "cpu") else {})},
        "evaluator": {"use": evaluator},
        "checkers": {
            component.name: {"use": component.name}
            for component in registry.components("checkers")
            if component.name in ("source_rules", "evaluation_rules")
        },
    }
    # Run times mean nothing in Triton's interpreter.
    timing = where == "gpu" or backend == "cpp"
    chosen = [
        f"evaluation.timing={str(timing).lower()}",
        f"evaluation.timing_trials={_TIMING_TRIALS}",
        f"evaluation.timeout_s={_TIMEOUT_S}",
    ]
    return read_evaluation_spec(plain, chosen, registry=registry)


async def _audited(sources: Mapping[str, str], spec: EvaluationSpec, registry: Registry) -> dict[str, Task]:
    """Tasks by source, with what their audits found; as they are where the evaluator audits none.

    Args:
        sources: id of a fixture, by the source of its task.
    """
    tasks = {source: Task(id=f"lab/{name}", reference=source) for source, name in sources.items()}
    evaluator = registry.make("evaluators", spec.evaluator)
    path = cache_directory() / "lab_audits.jsonl"
    kept = read_audits(path) if path.exists() else []
    audits = {audit_key(audit.sha256, audit.conditions): audit for audit in kept if audit.unaudited is None}
    slots = asyncio.Semaphore(os.cpu_count() or 1)

    async def one(task: Task) -> Task:
        key = audit_key(task.sha256, audit_conditions(spec.settings))
        async with slots:
            if key not in audits:
                audits[key] = await evaluator.audit(task, spec.settings, _AUDIT_S)
                append_audit(path, audits[key])
        return annotate(task, {task.sha256: audits[key]})

    try:
        if type(evaluator).audit is Evaluator.audit:
            return tasks
        await evaluator.start()
        return dict(zip(tasks, await asyncio.gather(*map(one, tasks.values())), strict=True))
    finally:
        await evaluator.aclose()


async def _judge(judging: CandidateEvaluator, fixture: Fixture, task: Task) -> Result:
    task = attrs.evolve(task, id=f"lab/{fixture.id}")
    extraction = extract_file(fixture.candidate, fences=judging.backend.facts.fences, backend=fixture.backend)
    reply = Reply(fixture.candidate, (), (), "stop")
    turn: Any = None
    for _ in range(fixture.times):
        turn = await judging.evaluate(SampleId(0, 0, 0, 0), task, Prompt((), ()), reply, extraction)
    return attrs.evolve(_result(fixture, turn), quarantine=quarantine_reasons(task))


def _result(fixture: Fixture, turn: Turn) -> Result:
    findings = sorted({f"{found.rule} ({found.severity.value})" for found in turn.findings if _tells(found.severity)})
    return Result(fixture, turn.outcome, turn.verdict, turn.speedup, tuple(findings), turn.message)


def _tells(severity: Severity) -> bool:
    return severity is not Severity.NOTE


def _share(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None
