"""Everything of a run except the policy: tasks, prompts, checks, evaluation, rewards, feedback; wired from a recipe."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import attrs

from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.environment.scoring import WeightedReward, conclude, forbidden, score
from kernelrl_core.errors import InfrastructureError
from kernelrl_core.interfaces.backends import Backend
from kernelrl_core.interfaces.checkers import Checker
from kernelrl_core.interfaces.feedback import Feedback
from kernelrl_core.interfaces.retrievers import Retriever
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.prompts import Composer
from kernelrl_core.prompts.extraction import extract
from kernelrl_core.recipe.prerequisites import require_prerequisites
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.types import (
    Candidate,
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Example,
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
from kernelrl_core.types import serialization as codec
from kernelrl_core.types.seeds import request_seed
from kernelrl_core.version import API_VERSION

__all__ = ["Environment"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Environment:
    """What turns a reply into a judged, scored and answered turn. Make it with `from_recipe`."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        tasks: TaskSource,
        backend: Backend,
        checkers: Mapping[str, Checker],
        rewards: Sequence[WeightedReward],
        feedback: Feedback,
        retriever: Retriever | None,
        service: EvaluationService,
        secret: bytes,
    ) -> None:
        self.recipe = recipe
        self.tasks = tasks
        self.backend = backend
        rules = {rule.id: rule for checker in checkers.values() for rule in checker.rules}
        self._forbid: dict[str, Rule] = {id_: rules[id_] for id_ in recipe.forbid if id_ in rules}
        self.composer = Composer(
            recipe.prompt, recipe.history, backend.facts, list(self._forbid.values()), recipe.evaluation
        )
        self._checkers = checkers
        self._rewards = rewards
        self._feedback = feedback
        self._retriever = retriever
        self._service = service
        self._secret = secret
        self._warned: set[str] = set()
        # One thread, for checkers are never called side by side.
        self._reader = ThreadPoolExecutor(1, "kernelrl-reader")

    @classmethod
    def from_recipe(cls, recipe: Recipe, *, registry: Registry, secret: bytes, cache_dir: Path | None) -> Environment:
        """Wire the components that a recipe names.

        Args:
            secret: key of the hidden input seeds.
            cache_dir: where verdicts are kept; None neither reads nor writes any.

        Raises:
            MissingPrerequisite: this machine lacks something; all of it is listed.
            UsageError: a component refuses its options.
        """
        require_prerequisites(recipe, registry, policy=False)
        evaluator = registry.make("evaluators", recipe.evaluator)
        retriever = registry.make("retrievers", recipe.retriever) if recipe.retriever is not None else None
        versions = {plugin.name: plugin.version for plugin in registry.plugins if plugin.state == "ok"}
        return cls(
            recipe,
            tasks=registry.make("tasks", recipe.tasks),
            backend=registry.make("backends", recipe.backend),
            checkers={name: registry.make("checkers", use) for name, use in recipe.checkers.items()},
            rewards=[
                WeightedReward(
                    name,
                    use.weight,
                    registry.make("rewards", use),
                    use.options.bounds(),
                    f"reward {use.use!r} of plugin {registry.plugin_of('rewards', use.use).name}",
                )
                for name, use in recipe.rewards.items()
            ],
            feedback=registry.make("feedback", recipe.feedback),
            retriever=retriever,
            service=EvaluationService(
                evaluator,
                cache_dir=cache_dir / "verdicts" if cache_dir is not None else None,
                identity=str(sorted(versions.items())),
            ),
            secret=secret,
        )

    async def evaluate_reply(
        self,
        id: SampleId,  # noqa: A002
        task: Task,
        prompt: Prompt,
        reply: Reply,
        *,
        seconds: Mapping[str, float],
    ) -> Turn:
        """Everything from reply to feedback.

        Raises:
            KernelRLError: a plugin failed, or the task cannot be used.
        """
        extraction = extract(
            prompt.prefill + reply.text,
            stop_reason=reply.stop_reason,
            fences=self.backend.facts.fences,
            backend=self.recipe.backend.use,
            thinking=reply.thinking,
        )
        return await self.evaluate_extraction(id, task, prompt, reply, extraction, seconds=seconds)

    async def evaluate_extraction(
        self,
        id: SampleId,  # noqa: A002
        task: Task,
        prompt: Prompt,
        reply: Reply,
        extraction: Extraction,
        *,
        seconds: Mapping[str, float],
        seed: str | None = None,
    ) -> Turn:
        """Check, evaluate, conclude, score and answer what was extracted.

        Args:
            seed: input seed in hex; None derives it from the run's secret.
        """
        spent = dict(seconds)
        before: tuple[Finding, ...] = ()
        after: tuple[Finding, ...] = ()
        evaluation: Evaluation | None = None
        if extraction.candidate is not None:
            candidate, before, spent["check"] = await self._in_reader_thread(self._read, extraction.candidate, task)
            extraction = attrs.evolve(extraction, candidate=candidate)
            if forbidden(before, self._forbid) is None:
                begin = time.monotonic()
                evaluation = await self._service.evaluate(self._request(task, candidate, seed, before))
                spent["evaluate"] = time.monotonic() - begin
                after = (*evaluation.findings, *await self._in_reader_thread(self._check, candidate, task, evaluation))
        conclusion = conclude(extraction, evaluation, before, after, self._forbid)
        turn = Turn(
            id=id,
            task=task,
            prompt=prompt,
            reply=reply,
            extraction=extraction,
            # Whatever it did when it ran, a rejected candidate earns what one earns that was not run.
            evaluation=evaluation if conclusion.outcome is not Outcome.REJECTED else None,
            findings=tuple(dict.fromkeys((*before, *after))),
            outcome=conclusion.outcome,
            verdict=conclusion.verdict,
            message=conclusion.message,
            seconds=spent,
        )
        if turn.outcome is Outcome.INFRA_ERROR:
            return turn
        weights = task.settings.weights
        rewards = [attrs.evolve(r, weight=weights.get(r.name, r.weight)) for r in self._rewards]
        turn = attrs.evolve(turn, score=score(turn, rewards, self.recipe.verdicts))
        with plugin_boundary(f"feedback {self.recipe.feedback.use!r}", "format"):
            return attrs.evolve(turn, feedback=self._feedback.format(turn))

    async def verify(self, turn: Turn) -> Turn:
        """Judge the kernel of a correct turn again, on other inputs and more strictly; only `verified` changes."""
        if turn.candidate is None:
            return turn
        begin = time.monotonic()
        as_in_recipe = attrs.evolve(turn.task, settings=TaskSettings())
        request = self._request(as_in_recipe, turn.candidate, None, turn.findings)
        settings = attrs.evolve(
            request.settings,
            profile="strict",
            trials=self.recipe.verify.trials,
            timing=False,
            timing_method="window",
            probes=(*EvaluationSettings().probes, *(("sizes",) if self.recipe.verify.sizes else ())),
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

    async def examples(self, task: Task) -> Sequence[Example]:
        """What the retriever finds for a task; nothing without one."""
        if self._retriever is None or self.recipe.retriever is None:
            return ()
        use = self.recipe.retriever
        search, backend = self._retriever.search, self.recipe.backend.use
        with plugin_boundary(f"retriever {use.use!r}", "search"):
            return await asyncio.to_thread(lambda: tuple(itertools.islice(search(task, backend), use.k)))

    async def observe(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Give the rows of `credits.jsonl` of a finished step to the retriever."""
        if self._retriever is not None and self.recipe.retriever is not None:
            with plugin_boundary(f"retriever {self.recipe.retriever.use!r}", "observe"):
                await asyncio.to_thread(self._retriever.observe, rows)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the retriever; empty where it learned nothing."""
        found = self._retriever.state() if self._retriever is not None else {}
        return {"retriever": dict(found)} if found else {}

    def restore(self, loop: Mapping[str, Any]) -> None:
        """Continue from the loop state of a checkpoint."""
        if self._retriever is not None and "retriever" in loop:
            self._retriever.restore(loop["retriever"])

    async def aclose(self) -> None:
        """End the evaluator and all below it."""
        self._reader.shutdown(wait=False)
        await self._service.aclose()

    async def _in_reader_thread(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call it in the thread that reads sources: one that is long to read must not hold up the run."""
        call = functools.partial(contextvars.copy_context().run, function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._reader, call)

    def _read(self, candidate: Candidate, task: Task) -> tuple[Candidate, tuple[Finding, ...], float]:
        """The candidate with what its source says, findings on that, and how many seconds it took."""
        begin = time.monotonic()
        with plugin_boundary(f"backend {self.recipe.backend.use!r}", "source_facts"):
            candidate = attrs.evolve(candidate, facts=self.backend.source_facts(candidate.source))
        found = self._check(candidate, task, None)
        return candidate, found, time.monotonic() - begin

    def _check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> tuple[Finding, ...]:
        findings: list[Finding] = []
        for name, checker in self._checkers.items():
            try:
                # What a checker makes while it is read, a generator's findings say, is its doing as well.
                found = checker.check(candidate, task, evaluation)
                found = [attrs.evolve(finding, checker=finding.checker or name) for finding in found]
            except Exception as error:
                # The sample goes on without this check, and says so: a checker must not be able to stop a run.
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
        settings = self.recipe.evaluation.for_task(task)
        if task.precision is not None:
            settings = codec.from_json(type(settings), {**codec.to_json(settings), "precision": task.precision})
        # Profile `kernelbench` judges on the benchmark's own inputs.
        if task.input_overlay is not None and settings.input_overlay == "none" and settings.profile == "strict":
            settings = codec.from_json(type(settings), {**codec.to_json(settings), "input_overlay": task.input_overlay})
        source_sha256 = sha256_text(candidate.source)
        return EvaluationRequest(
            task_id=task.id,
            task_source=task.reference,
            task_sha256=task.sha256,
            source=candidate.source,
            source_sha256=source_sha256,
            backend=self.recipe.backend.use,
            backend_options=codec.to_json(self.recipe.backend.options),
            settings=settings,
            seed=seed or request_seed(self._secret, task.sha256, source_sha256),
            api_version=API_VERSION,
            kernels=(
                *(kernel.name for kernel in candidate.facts.kernels),
                *(("…",) if candidate.facts.unread else ()),
            ),
            suspect_rules=tuple(sorted({finding.rule for finding in found if finding.severity is not Severity.NOTE})),
        )
