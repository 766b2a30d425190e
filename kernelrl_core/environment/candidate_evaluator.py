"""From an extracted candidate to its findings, evaluation and conclusion."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import attrs

from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.environment.scoring import Judgement, conclude, forbidden
from kernelrl_core.errors import InfrastructureError, UsageError
from kernelrl_core.interfaces.backends import Backend
from kernelrl_core.interfaces.checkers import Checker
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.plugins.boundary import place_of, plugin_boundary
from kernelrl_core.plugins.load_errors import error_text
from kernelrl_core.plugins.output import output_to_stderr
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.evaluation_spec import EvaluationSpec
from kernelrl_core.recipe.prerequisites import require_prerequisites
from kernelrl_core.sources.packages import imported_texts, top_modules
from kernelrl_core.types import (
    CHECKER_FAILED,
    Candidate,
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Extraction,
    Finding,
    Outcome,
    Rule,
    Severity,
    SourceFacts,
    Task,
    TaskSettings,
    sha256_text,
)
from kernelrl_core.types.seeds import request_seed
from kernelrl_core.types.serialization import to_json
from kernelrl_core.version import API_VERSION

__all__ = ["CandidateEvaluator"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class CandidateEvaluator:
    """Evaluates candidates according to an evaluation specification. Create it with `from_spec`.

    Args:
        checkers: checkers by their names in the recipe.
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
        self.package: Mapping[str, str] = {}
        """Files that candidates may import, where `evaluate` gets no others. A search sets it, training never."""
        rules = {rule.id: rule for checker in checkers.values() for rule in checker.rules}
        self.stated: Mapping[str, Rule] = {id_: rules[id_] for id_ in spec.forbid if id_ in rules}
        """Stated rules by id: the prompt prohibits them, and a finding of one rejects the candidate."""
        statements = {rule.statement for rule in self.stated.values()}
        self._like_stated = {id_: rule for id_, rule in rules.items() if rule.statement in statements}
        self._checkers, self._service, self._secret = checkers, service, secret
        self._logged: set[str] = set()
        # One thread: checkers need not be thread-safe.
        self._reader = ThreadPoolExecutor(1, "kernelrl-reader")

    @classmethod
    def from_spec(
        cls,
        spec: EvaluationSpec,
        *,
        registry: Registry,
        secret: bytes,
        cache_dir: Path | None,
        evaluator: Evaluator | None = None,
    ) -> CandidateEvaluator:
        """Create the components of an evaluation specification.

        Args:
            secret: key of the hidden input seeds.
            cache_dir: directory of the evaluation cache; None: no cache.
            evaluator: that of the specification, if there is one already.

        Raises:
            MissingPrerequisite: this machine lacks prerequisites; the message lists all of them.
            UsageError: a component rejects its options.
        """
        require_prerequisites(spec.uses(), spec, registry)
        versions = {plugin.name: plugin.version for plugin in registry.plugins if plugin.state == "ok"}
        return cls(
            spec,
            backend=registry.make("backends", spec.backend),
            checkers={name: registry.make("checkers", use) for name, use in spec.checkers.items()},
            service=EvaluationService(
                evaluator or registry.make("evaluators", spec.evaluator),
                cache_dir=cache_dir / "verdicts" if cache_dir is not None else None,
                identity=str(sorted(versions.items())),
            ),
            secret=secret,
        )

    @property
    def capacity(self) -> int:
        """Number of evaluations that may run concurrently; may change."""
        return self._service.capacity

    async def start(self) -> None:
        """Start the evaluator.

        Raises:
            UsageError, MissingPrerequisite: it cannot work with its options, or lacks the backend. The first also if it
                has several GPU models and times are measured.
        """
        await self._service.start(self.spec.backend.use)
        models = self._service.gpu_model
        if self.spec.settings.timing and ", " in models:
            raise UsageError(
                f"evaluator {self.spec.evaluator.use} has GPUs of several models ({models}), whose times cannot be "
                "compared",
                fix="use one GPU model for times, by the options of the evaluator, or set evaluation.timing=false",
                see="gpu-models",
            )

    async def evaluate(
        self,
        task: Task,
        extraction: Extraction,
        *,
        package: Mapping[str, str] | None = None,
        seed: str | None = None,
    ) -> Judgement:
        """Check and evaluate the extracted candidate, and conclude its outcome and verdict.

        Args:
            package: files that the candidate may import; None: those of the evaluator.
            seed: input seed as hex; None: derived from the secret, the task and the source.

        Raises:
            InfrastructureError: the evaluation failed.
            KernelRLError: a plugin failed, or the task is unusable.
        """
        seconds: dict[str, float] = {}
        source_findings: tuple[Finding, ...] = ()
        run_findings: tuple[Finding, ...] = ()
        evaluation: Evaluation | None = None
        package = self.package if package is None else package
        if extraction.candidate is not None:
            read = await self._in_reader_thread(self._read, extraction.candidate, task, package)
            candidate, source_findings, seconds["check"] = read
            extraction = attrs.evolve(extraction, candidate=candidate)
            if forbidden(source_findings, self.stated) is None:
                begin = time.monotonic()
                evaluation = await self._service.evaluate(
                    self._request(task, candidate, seed, source_findings, package)
                )
                seconds["evaluate"] = time.monotonic() - begin
                checked = await self._in_reader_thread(self._check, candidate, task, evaluation)
                run_findings = (*evaluation.findings, *checked)
        conclusion = conclude(extraction, evaluation, source_findings, run_findings, self.stated)
        # A rejected candidate gets the same score whether or not it ran.
        is_rejected = conclusion.outcome is Outcome.REJECTED
        findings = tuple(dict.fromkeys((*source_findings, *run_findings)))
        return Judgement(extraction, None if is_rejected else evaluation, findings, conclusion, seconds)

    async def verify(
        self, task: Task, candidate: Candidate, findings: Sequence[Finding], *, trials: int, sizes: bool
    ) -> bool | None:
        """Whether a correct candidate is correct when it is evaluated again, strictly and on other inputs; None after
        an infrastructure error.

        Args:
            findings: those of the first evaluation.
            trials: number of correctness trials.
            sizes: also call the kernel on inputs of other sizes.

        Raises:
            KernelRLError: a plugin failed.
        """
        as_in_recipe = attrs.evolve(task, settings=TaskSettings())
        request = self._request(as_in_recipe, candidate, None, findings, self.package)
        settings = attrs.evolve(
            request.settings,
            profile="strict",
            trials=trials,
            timing=False,
            timing_method="replay",
            probes=(*EvaluationSettings().probes, *(("sizes",) if sizes else ())),
        )
        seed = request_seed(self._secret, f"verify {task.sha256}", request.source_sha256)
        try:
            found = await self._service.evaluate(attrs.evolve(request, settings=settings, seed=seed))
        except InfrastructureError:
            return None  # the evaluation service has logged it; the first evaluation is valid
        return found.outcome is Outcome.CORRECT and all(one.severity is Severity.NOTE for one in found.findings)

    def forbids(self, kernel: str, reference: str) -> bool:
        """Whether a kernel that a prompt may show breaks a stated rule by its source. It is not executed, so a rule
        with the same statement as a stated one counts. Blocks: call it in worker threads.

        Raises:
            KernelRLError: the backend failed.
        """
        if not self.stated:
            return False
        candidate, task = Candidate(kernel, self.spec.backend.use), Task("example", reference)
        call = functools.partial(contextvars.copy_context().run, self._read, candidate, task, {})
        _, findings, _ = self._reader.submit(call).result()
        return forbidden(findings, self._like_stated) is not None

    async def aclose(self) -> None:
        """Close the evaluator and its processes."""
        self._reader.shutdown(wait=False)
        await self._service.aclose()

    async def _in_reader_thread(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call `function` in the reader thread, because analysing a long source must not block the event loop."""
        call = functools.partial(contextvars.copy_context().run, function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._reader, call)

    def _read(
        self, candidate: Candidate, task: Task, package: Mapping[str, str]
    ) -> tuple[Candidate, tuple[Finding, ...], float]:
        """The candidate with source facts, the findings on its source, and the duration in seconds."""
        begin = time.monotonic()
        with plugin_boundary(f"backend {self.spec.backend.use!r}", "source_facts"):
            candidate = attrs.evolve(candidate, facts=self._facts(candidate.source, package))
        found = self._check(candidate, task, None)
        return candidate, found, time.monotonic() - begin

    def _facts(self, source: str, package: Mapping[str, str]) -> SourceFacts:
        """The facts of a source. Kernels that it imports of the package count, if they are launched."""
        texts = imported_texts(source, package)
        if not texts:
            return attrs.evolve(self.backend.source_facts(source), own_modules=top_modules(package))
        # One text, so that launches and definitions in several files meet. The lines of the source stay.
        facts = self.backend.source_facts("\n".join([source, *texts]))
        last = source.count("\n") + 1
        return SourceFacts(
            kernels=tuple(kernel for kernel in facts.kernels if kernel.launched or kernel.line <= last),
            embedded=tuple(piece for piece in facts.embedded if piece.line <= last),
            unread=facts.unread,
            own_modules=top_modules(package),
        )

    def _check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> tuple[Finding, ...]:
        findings: list[Finding] = []
        for name, checker in self._checkers.items():
            try:
                # `check` may be a generator, so iterate inside the `try`.
                with output_to_stderr():
                    found = checker.check(candidate, task, evaluation)
                    found = [attrs.evolve(finding, checker=finding.checker or name) for finding in found]
            except (Exception, SystemExit) as error:
                # A checker must not be able to stop a run: continue with a note instead of its findings.
                findings.append(self._failure(name, candidate, f"{error_text(error)}{place_of(error)}"))
                continue
            findings += found
            declared = {rule.id for rule in checker.rules}
            if undeclared := [finding.rule for finding in found if finding.rule not in declared]:
                problem = f"it reports the rule {undeclared[0]!r}, which its `rules` do not declare"
                findings.append(self._failure(name, candidate, problem))
        return tuple(findings)

    def _failure(self, name: str, candidate: Candidate, problem: str) -> Finding:
        """The note about a failure of a checker. The first traceback of each checker is logged."""
        package = type(self._checkers[name]).__module__.partition(".")[0]
        evidence = f"checkers.{name} failed: {type(self._checkers[name]).__name__} of {package}: {problem}"
        if name not in self._logged and sys.exc_info()[0] is not None:
            self._logged.add(name)
            _log.info("%s; on kernel %s", evidence, candidate.sha256[:12], exc_info=True)
        return Finding(CHECKER_FAILED, Severity.NOTE, evidence[:500], checker=name)

    def _request(
        self,
        task: Task,
        candidate: Candidate,
        seed: str | None,
        found: Sequence[Finding],
        package: Mapping[str, str],
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
            domain=task.domain,
            package=package,
        )
