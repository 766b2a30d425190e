"""The environment of a run, created from a recipe: tasks, prompts, evaluation, reward components, feedback."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
from kernelrl_core.environment.retrieval import Retrieval, RetrievedExamples, make_retrieval
from kernelrl_core.environment.scoring import PromptExamples, WeightedReward, judged_turn, score, weighted_rewards
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.interfaces.feedback import Feedback
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.plugins.boundary import plugin_boundary, returned
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.prompts import Composer
from kernelrl_core.prompts.extraction import extract
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.recipe.prerequisites import recipe_uses, require_prerequisites
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.types import CHECKER_FAILED, Extraction, Prompt, Reply, SampleId, Task, Turn

__all__ = ["Environment"]

_log = logging.getLogger(__name__)


class Environment:
    """Converts a reply into an evaluated and scored turn with feedback. Create it with `from_recipe`."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        evaluator: CandidateEvaluator,
        tasks: TaskSource,
        rewards: Sequence[WeightedReward],
        feedback: Feedback,
        retrieval: Retrieval | None,
    ) -> None:
        self.recipe, self.tasks, self.evaluator = recipe, tasks, evaluator
        stated = list(evaluator.stated.values())
        self.composer = Composer(recipe.prompt, recipe.history, evaluator.backend.facts, stated, recipe.evaluation)
        self.retrieval = retrieval
        """Retrieval of examples; None if the recipe has no retriever."""
        self._rewards, self._feedback = rewards, feedback
        self._warned: set[str] = set()

    @classmethod
    def from_recipe(
        cls,
        recipe: Recipe,
        *,
        registry: Registry,
        secret: bytes,
        cache_dir: Path | None,
        evaluator: Evaluator | None = None,
    ) -> Environment:
        """Create the components that a recipe selects.

        Args:
            secret: key of the hidden input seeds.
            cache_dir: directory of the evaluation cache; None: no cache.
            evaluator: that of the recipe, if there is one already.

        Raises:
            MissingPrerequisite: this machine lacks prerequisites; the message lists all of them.
            UsageError: a component rejects its options.
        """
        spec = spec_of(recipe)
        require_prerequisites(recipe_uses(recipe, policy=False), spec, registry)
        candidates = CandidateEvaluator.from_spec(
            spec, registry=registry, secret=secret, cache_dir=cache_dir, evaluator=evaluator
        )
        tasks = registry.make("tasks", recipe.tasks)
        return cls(
            recipe,
            evaluator=candidates,
            tasks=tasks,
            rewards=weighted_rewards(recipe.rewards, registry),
            feedback=registry.make("feedback", recipe.feedback),
            retrieval=make_retrieval(recipe, registry, tasks, candidates.forbids),
        )

    async def start(self) -> None:
        """Start the evaluator; see `CandidateEvaluator.start`."""
        await self.evaluator.start()

    async def evaluate_reply(
        self,
        id: SampleId,  # noqa: A002
        task: Task,
        prompt: Prompt,
        reply: Reply,
        *,
        seconds: Mapping[str, float],
        staleness: int = 0,
        examples: PromptExamples = PromptExamples(),  # noqa: B008  # frozen
    ) -> Turn:
        """Extract, evaluate and score a reply; the turn includes feedback, but no verification.

        Args:
            seconds: durations of the turn's earlier phases.
            staleness: number of updates since the weights that sampled the reply.
            examples: the retrieved examples of the prompt.

        Raises:
            InfrastructureError: the evaluation failed.
            KernelRLError: a plugin failed, or the task is unusable.
        """
        extraction = extract(
            prompt.prefill + reply.text,
            stop_reason=reply.stop_reason,
            fences=self.evaluator.backend.facts.fences,
            backend=self.recipe.backend.use,
            thinking=reply.thinking,
        )
        return await self.evaluate_extraction(
            id, task, prompt, reply, extraction, seconds=seconds, staleness=staleness, examples=examples
        )

    async def evaluate_extraction(
        self,
        id: SampleId,  # noqa: A002
        task: Task,
        prompt: Prompt,
        reply: Reply,
        extraction: Extraction,
        *,
        seconds: Mapping[str, float],
        staleness: int = 0,
        examples: PromptExamples = PromptExamples(),  # noqa: B008  # frozen
        seed: str | None = None,
    ) -> Turn:
        """Evaluate and score an extraction, with feedback. Arguments and errors as in `evaluate_reply`.

        Args:
            seed: input seed as hex; see `CandidateEvaluator.evaluate`.
        """
        judgement = await self.evaluator.evaluate(task, extraction, seed=seed)
        turn = judged_turn(id, task, prompt, reply, judgement, seconds=seconds, staleness=staleness, examples=examples)
        return turn if turn.masked else self._scored(turn)

    def _scored(self, turn: Turn) -> Turn:
        """The turn with its score and its feedback; reward components and the formatter read the turn itself."""
        self._warn_of_failed_checkers(turn)
        turn = attrs.evolve(turn, score=score(turn, self._rewards, self.recipe.verdicts))
        label = f"feedback {self.recipe.feedback.use!r}"
        with plugin_boundary(label, "format"):
            return attrs.evolve(turn, feedback=returned(self._feedback.format(turn), str, label, "format"))

    def _warn_of_failed_checkers(self, turn: Turn) -> None:
        """Log a warning about the first failure of each checker."""
        for finding in turn.findings:
            if finding.rule == CHECKER_FAILED and finding.checker not in self._warned and turn.candidate is not None:
                self._warned.add(finding.checker)
                _log.warning(
                    "%s; first on kernel %s; correct the plugin; test it with 'kernelrl plugins check'",
                    finding.evidence, turn.candidate.sha256[:12],
                )  # fmt: skip

    async def verify(self, turn: Turn) -> Turn:
        """Verify a correct turn with the recipe's `verify` settings. Only `verified` and `seconds` change.

        Raises:
            KernelRLError: a plugin failed.
        """
        if turn.candidate is None:
            return turn
        began = time.monotonic()
        settings = self.recipe.verify
        verified = await self.evaluator.verify(
            turn.task, turn.candidate, turn.findings, trials=settings.trials, sizes=settings.sizes
        )
        seconds = {**turn.seconds, "verify": time.monotonic() - began}
        return attrs.evolve(turn, verified=verified, seconds=seconds)

    async def examples(self, task: Task, recorded: Turn | None = None) -> RetrievedExamples:
        """Up to `retriever.k` retrieved examples for the group of a task, best first; empty without a retriever.

        Args:
            recorded: first turn of an episode of the group in an interrupted run. Its examples are returned.

        Raises:
            InfrastructureError: a service of the retriever failed.
            KernelRLError: the retriever failed.
        """
        if self.retrieval is None:
            return RetrievedExamples()
        if recorded is not None:
            return await asyncio.to_thread(self.retrieval.recorded, task, recorded)
        return await asyncio.to_thread(self.retrieval.search, task)

    async def observe(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Pass the `credits.jsonl` rows of a finished step to the retriever.

        Raises:
            KernelRLError: the retriever failed.
        """
        if self.retrieval is not None:
            with plugin_boundary(self.retrieval.label, "observe"):
                await asyncio.to_thread(self.retrieval.retriever.observe, rows)

    def state(self) -> dict[str, Any]:
        """State of the retriever for a checkpoint; empty if it has none."""
        found = self.retrieval.retriever.state() if self.retrieval is not None else {}
        return {"retriever": dict(found)} if found else {}

    def restore(self, loop: Mapping[str, Any]) -> None:
        """Restore the retriever from the loop state of a checkpoint."""
        if self.retrieval is not None and "retriever" in loop:
            self.retrieval.retriever.restore(loop["retriever"])

    async def aclose(self) -> None:
        """Close the evaluator and its processes."""
        await self.evaluator.aclose()
