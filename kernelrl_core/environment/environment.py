"""Everything of a run except the policy: tasks, prompts, evaluation, rewards, feedback; wired from a recipe."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
from kernelrl_core.environment.scoring import WeightedReward, score
from kernelrl_core.interfaces.feedback import Feedback
from kernelrl_core.interfaces.retrievers import Retriever
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.prompts import Composer
from kernelrl_core.prompts.extraction import extract
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.recipe.prerequisites import recipe_uses, require_prerequisites
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.types import Example, Extraction, Outcome, Prompt, Reply, SampleId, Task, Turn

__all__ = ["Environment"]


class Environment:
    """Turns a reply into an evaluated and scored turn with its feedback. Make it with `from_recipe`."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        evaluator: CandidateEvaluator,
        tasks: TaskSource,
        rewards: Sequence[WeightedReward],
        feedback: Feedback,
        retriever: Retriever | None,
    ) -> None:
        self.recipe, self.tasks, self.evaluator = recipe, tasks, evaluator
        stated = list(evaluator.stated.values())
        self.composer = Composer(recipe.prompt, recipe.history, evaluator.backend.facts, stated, recipe.evaluation)
        self._rewards, self._feedback, self._retriever = rewards, feedback, retriever

    @classmethod
    def from_recipe(cls, recipe: Recipe, *, registry: Registry, secret: bytes, cache_dir: Path | None) -> Environment:
        """Wire the components that a recipe names.

        Args:
            secret: key of the hidden input seeds.
            cache_dir: where evaluations are cached; None neither reads nor writes any.

        Raises:
            MissingPrerequisite: this machine lacks something; all of it is listed.
            UsageError: a component refuses its options.
        """
        spec = spec_of(recipe)
        require_prerequisites(recipe_uses(recipe, policy=False), spec, registry)
        return cls(
            recipe,
            evaluator=CandidateEvaluator.from_spec(spec, registry=registry, secret=secret, cache_dir=cache_dir),
            tasks=registry.make("tasks", recipe.tasks),
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
            retriever=registry.make("retrievers", recipe.retriever) if recipe.retriever is not None else None,
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
            InfrastructureError: the evaluation could not be carried out.
            KernelRLError: a plugin failed, or the task cannot be used.
        """
        extraction = extract(
            prompt.prefill + reply.text,
            stop_reason=reply.stop_reason,
            fences=self.evaluator.backend.facts.fences,
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
        """Evaluate and score what was extracted, with feedback; see `CandidateEvaluator.evaluate`."""
        turn = await self.evaluator.evaluate(id, task, prompt, reply, extraction, seconds=seconds, seed=seed)
        if turn.outcome is Outcome.INFRA_ERROR:
            return turn
        weights = task.settings.weights
        rewards = [attrs.evolve(r, weight=weights.get(r.name, r.weight)) for r in self._rewards]
        turn = attrs.evolve(turn, score=score(turn, rewards, self.recipe.verdicts))
        with plugin_boundary(f"feedback {self.recipe.feedback.use!r}", "format"):
            return attrs.evolve(turn, feedback=self._feedback.format(turn))

    async def verify(self, turn: Turn) -> Turn:
        """Evaluate the kernel of a correct turn again, as the recipe's `verify` says; only `verified` changes."""
        settings = self.recipe.verify
        return await self.evaluator.verify(turn, trials=settings.trials, sizes=settings.sizes)

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
        await self.evaluator.aclose()
