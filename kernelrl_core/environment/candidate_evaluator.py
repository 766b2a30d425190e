"""From an extracted candidate to a concluded turn: check, evaluate, conclude."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import attrs

from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.environment.scoring import conclude, forbidden
from kernelrl_core.errors import InfrastructureError
from kernelrl_core.interfaces.backends import Backend
from kernelrl_core.interfaces.checkers import Checker
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.evaluation_spec import EvaluationSpec
from kernelrl_core.recipe.prerequisites import require_prerequisites
from kernelrl_core.types import (
    Candidate,
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Extraction,
    Finding,
    Outcome,
    Prompt,
    Reply,
    Rule,
    SampleId,
    Severity,
    Task,
    TaskSettings,
    Turn,
    sha256_text,
)
from kernelrl_core.types.seeds import request_seed
from kernelrl_core.types.serialization import to_json
from kernelrl_core.version import API_VERSION

__all__ = ["CandidateEvaluator"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class CandidateEvaluator:
    """Evaluates candidates as a specification says. Make it with `from_spec`.

    Args:
        checkers: by their names in the recipe.
        secret: key of the hidden input seeds.
    """

    def __init__(
        self,
        spec: EvaluationSpec,
        *,
        backend: Backend,
        checkers: Mapping[str, Checker],
        service: EvaluationService,
        secret: bytes,
    ) -> None:
        self.spec, self.backend = spec, backend
        rules = {rule.id: rule for checker in checkers.values() for rule in checker.rules}
        self.stated: Mapping[str, Rule] = {id_: rules[id_] for id_ in spec.forbid if id_ in rules}
        """Rules that prompts state and that reject a candidate, by id."""
        self._checkers, self._service, self._secret = checkers, service, secret
        self._warned: set[str] = set()
        # One thread, for checkers are never called side by side.
        self._reader = ThreadPoolExecutor(1, "kernelrl-reader")

    @classmethod
    def from_spec(
        cls, spec: EvaluationSpec, *, registry: Registry, secret: bytes, cache_dir: Path | None
    ) -> CandidateEvaluator:
        """Wire the components of a specification.

        Args:
            cache_dir: where evaluations are cached; None neither reads nor writes any.

        Raises:
            MissingPrerequisite: this machine lacks something; all of it is listed.
            UsageError: a component refuses its options.
        """
        require_prerequisites(spec.uses(), spec, registry)
        versions = {plugin.name: plugin.version for plugin in registry.plugins if plugin.state == "ok"}
        return cls(
            spec,
            backend=registry.make("backends", spec.backend),
            checkers={name: registry.make("checkers", use) for name, use in spec.checkers.items()},
            service=EvaluationService(
                registry.make("evaluators", spec.evaluator),
                cache_dir=cache_dir / "verdicts" if cache_dir is not None else None,
                identity=str(sorted(versions.items())),
            ),
            secret=secret,
        )

    async def evaluate(
        self,
        id: SampleId,  # noqa: A002
        task: Task,
        prompt: Prompt,
        reply: Reply,
        extraction: Extraction,
        *,
        seconds: Mapping[str, float] | None = None,
        seed: str | None = None,
    ) -> Turn:
        """The concluded turn, without score and feedback.

        Args:
            seconds: spent on the turn before.
            seed: input seed in hex; None derives it from the secret.

        Raises:
            InfrastructureError: the evaluation could not be carried out.
            KernelRLError: a plugin failed, or the task cannot be used.
        """
        spent = dict(seconds or {})
        before: tuple[Finding, ...] = ()
        after: tuple[Finding, ...] = ()
        evaluation: Evaluation | None = None
        if extraction.candidate is not None:
            candidate, before, spent["check"] = await self._in_reader_thread(self._read, extraction.candidate, task)
            extraction = attrs.evolve(extraction, candidate=candidate)
            if forbidden(before, self.stated) is None:
                begin = time.monotonic()
                evaluation = await self._service.evaluate(self._request(task, candidate, seed, before))
                spent["evaluate"] = time.monotonic() - begin
                after = (*evaluation.findings, *await self._in_reader_thread(self._check, candidate, task, evaluation))
        conclusion = conclude(extraction, evaluation, before, after, self.stated)
        return Turn(
            id=id,
            task=task,
            prompt=prompt,
            reply=reply,
            extraction=extraction,
            # A rejected candidate gets the same score whether or not it ran.
            evaluation=evaluation if conclusion.outcome is not Outcome.REJECTED else None,
            findings=tuple(dict.fromkeys((*before, *after))),
            outcome=conclusion.outcome,
            verdict=conclusion.verdict,
            message=conclusion.message,
            seconds=spent,
        )

    async def verify(self, turn: Turn, *, trials: int, sizes: bool) -> Turn:
        """Evaluate the kernel of a correct turn again, on other inputs and more strictly; only `verified` changes.

        Args:
            trials: correctness trials.
            sizes: call the kernel on inputs of other sizes, too.
        """
        if turn.candidate is None:
            return turn
        begin = time.monotonic()
        as_in_recipe = attrs.evolve(turn.task, settings=TaskSettings())
        request = self._request(as_in_recipe, turn.candidate, None, turn.findings)
        settings = attrs.evolve(
            request.settings,
            profile="strict",
            trials=trials,
            timing=False,
            timing_method="window",
            probes=(*EvaluationSettings().probes, *(("sizes",) if sizes else ())),
        )
        seed = request_seed(self._secret, f"verify {turn.task.sha256}", request.source_sha256)
        verified = None
        try:
            found = await self._service.evaluate(attrs.evolve(request, settings=settings, seed=seed))
        except InfrastructureError:
            pass  # logged where the tries ended; the turn itself was evaluated
        else:
            verified = found.outcome is Outcome.CORRECT and all(f.severity is Severity.NOTE for f in found.findings)
        seconds = {**turn.seconds, "verify": time.monotonic() - begin}
        return attrs.evolve(turn, verified=verified, seconds=seconds)

    async def aclose(self) -> None:
        """End the evaluator and all below it."""
        self._reader.shutdown(wait=False)
        await self._service.aclose()

    async def _in_reader_thread(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call it in the thread that reads sources: one that is long to read must not hold up the run."""
        call = functools.partial(contextvars.copy_context().run, function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._reader, call)

    def _read(self, candidate: Candidate, task: Task) -> tuple[Candidate, tuple[Finding, ...], float]:
        """The candidate with its source facts, findings on the source, and how many seconds it took."""
        begin = time.monotonic()
        with plugin_boundary(f"backend {self.spec.backend.use!r}", "source_facts"):
            candidate = attrs.evolve(candidate, facts=self.backend.source_facts(candidate.source))
        found = self._check(candidate, task, None)
        return candidate, found, time.monotonic() - begin

    def _check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> tuple[Finding, ...]:
        findings: list[Finding] = []
        for name, checker in self._checkers.items():
            try:
                # `check` may be a generator: it is iterated inside the `try`.
                found = checker.check(candidate, task, evaluation)
                found = [attrs.evolve(finding, checker=finding.checker or name) for finding in found]
            except Exception as error:
                # The sample continues without this check and with a note: a checker must not be able to stop a run.
                if name not in self._warned:
                    self._warned.add(name)
                    _log.warning("checkers.%s failed on %s", name, candidate.sha256, exc_info=True)
                evidence = f"checkers.{name} failed: {type(error).__name__}: {error}"
                findings.append(Finding("checker_failed", Severity.NOTE, evidence[:500], checker=name))
            else:
                findings += found
        return tuple(findings)

    def _request(
        self, task: Task, candidate: Candidate, seed: str | None, found: Sequence[Finding] = ()
    ) -> EvaluationRequest:
        source_sha256 = sha256_text(candidate.source)
        return EvaluationRequest(
            task_id=task.id,
            task_source=task.reference,
            task_sha256=task.sha256,
            source=candidate.source,
            source_sha256=source_sha256,
            backend=self.spec.backend.use,
            backend_options=to_json(self.spec.backend.options),
            settings=self.spec.settings.for_task(task),
            seed=seed or request_seed(self._secret, task.sha256, source_sha256),
            api_version=API_VERSION,
            kernels=tuple(kernel.name for kernel in candidate.facts.kernels),
            kernels_complete=not candidate.facts.unread,
            suspect_rules=tuple(sorted({finding.rule for finding in found if finding.severity is not Severity.NOTE})),
        )
