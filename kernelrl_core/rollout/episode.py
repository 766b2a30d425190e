"""One attempt at a task: a few turns, each a prompt, a reply and a judgement."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import attrs

from kernelrl_core.errors import InfrastructureError
from kernelrl_core.interfaces.policies import Policy
from kernelrl_core.monitoring.timeline import Timeline, split_judgement
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.prompts import Composer
from kernelrl_core.recipe.schema import Recipe, SpeedupStop
from kernelrl_core.rollout.sampling_slots import SamplingSlots
from kernelrl_core.types import Episode, Example, Extraction, Outcome, Prompt, Reply, SampleId, Task, Turn, Verdict
from kernelrl_core.types.seeds import derived_seed, sample_seed
from kernelrl_core.types.training import SamplingSettings

__all__ = ["Judging", "Player", "reply_limit"]


class Judging(Protocol):
    """What an episode needs of `kernelrl_core.environment.environment.Environment`."""

    composer: Composer

    async def evaluate_reply(
        self,
        id: SampleId,  # noqa: A002
        task: Task,
        prompt: Prompt,
        reply: Reply,
        *,
        seconds: Mapping[str, float],
    ) -> Turn: ...

    async def verify(self, turn: Turn) -> Turn: ...

    async def examples(self, task: Task) -> Sequence[Example]: ...


def _unlimited(player: Player) -> SamplingSlots:
    return SamplingSlots(None, player.recipe.episode.turns, player.timeline)


@attrs.frozen
class Player:
    """Plays episodes as a recipe says."""

    recipe: Recipe
    policy: Policy
    environment: Judging
    purpose: str
    """`train` or `eval`: keeps their seeds apart."""
    temperature: float
    finished: Mapping[SampleId, Turn]
    """Turns of an interrupted run. They are taken as they are, neither sampled nor judged again."""
    record: Callable[[Turn], Awaitable[None]]
    """Journals a turn as soon as it is over."""
    beginning: Callable[[SampleId, Prompt], Awaitable[None]] | None = None
    """Called before a reply is drawn. May raise `BudgetReached`."""
    updates: Callable[[], int] | None = None
    """Updates that the policy has had; None: as many as the step's number."""
    timeline: Timeline = attrs.field(factory=Timeline)
    """Told what goes on when."""
    slots: SamplingSlots = attrs.field(default=attrs.Factory(_unlimited, takes_self=True))
    """Places for replies that are drawn at once."""

    async def play(self, step: int, task_index: int, attempt: int, task: Task) -> Episode:
        """The turns of an attempt. The episode ends early where the recipe says so, and at an infrastructure error."""
        turns: list[Turn] = []
        for number in range(self.recipe.episode.turns):
            where = SampleId(step, task_index, attempt, number)
            turn = self.finished.get(where)
            if turn is None:
                turn = await self._turn(where, task, tuple(turns))
                await self.record(turn)
            turns.append(turn)
            if turn.masked or self._enough(turn):
                break
        return Episode(tuple(turns))

    async def _turn(self, where: SampleId, task: Task, earlier: tuple[Turn, ...]) -> Turn:
        examples = await self.environment.examples(task)
        with plugin_boundary(f"policy {self.recipe.policy.use!r}", "render"):
            prompt, max_tokens = self.environment.composer.fit(
                task,
                render=self.policy.render,
                context_tokens=self.policy.context_tokens,
                max_tokens=reply_limit(self.recipe, where.step),
                examples=examples,
                turns=earlier,
            )
        sampling = self.recipe.sampling
        settings = SamplingSettings(
            max_tokens=max_tokens,
            temperature=self.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stop=sampling.stop,
            seed=sample_seed(self.recipe.seed, self.purpose, where, task.id),
        )
        async with self.slots.place(where) as waited_s:
            staleness = where.step - self.updates() if self.updates is not None else 0
            if self.beginning is not None:
                await self.beginning(where, prompt)
            with self.timeline.span("sampling") as sampled:
                try:
                    with plugin_boundary(f"policy {self.recipe.policy.use!r}", "sample"):
                        reply = await self.policy.sample(prompt, settings)
                except InfrastructureError as error:
                    return _unsampled(where, task, prompt, error, sampled.seconds())
        seconds = {"wait": waited_s, "sample": sampled.seconds()}
        with self.timeline.span("evaluating") as judged:
            turn = await self.environment.evaluate_reply(where, task, prompt, reply, seconds=seconds)
            turn = await self.environment.verify(turn) if self._is_verified(turn) else turn
        split_judgement(judged, turn)
        self.slots.took(where, sampled.seconds() + judged.seconds())
        return attrs.evolve(turn, staleness=staleness) if staleness else turn

    def _is_verified(self, turn: Turn) -> bool:
        if not turn.correct or turn.candidate is None:
            return False
        share = self.recipe.verify.eval if self.purpose == "eval" else self.recipe.verify.train
        # By the kernel and not by the place: equal kernels are judged once, and a resumed run chooses the same.
        drawn = derived_seed(self.recipe.seed, "verify", turn.task.sha256, turn.candidate.sha256)
        return drawn < share * 2**63

    def _enough(self, turn: Turn) -> bool:
        stop = self.recipe.episode.stop
        if isinstance(stop, SpeedupStop):
            return turn.speedup is not None and turn.speedup >= stop.speedup
        return stop == "correct" and turn.correct


def reply_limit(recipe: Recipe, step: int) -> int:
    """`max_tokens` of a step, after the extension."""
    extend = recipe.sampling.extend
    return extend.max_tokens if extend is not None and step >= extend.after_step else recipe.sampling.max_tokens


def _unsampled(where: SampleId, task: Task, prompt: Prompt, error: InfrastructureError, seconds: float) -> Turn:
    return Turn(
        id=where,
        task=task,
        prompt=prompt,
        reply=Reply("", (), (), "stop"),
        extraction=Extraction(None),
        evaluation=None,
        findings=(),
        outcome=Outcome.INFRA_ERROR,
        verdict=Verdict.CLEAN,
        message=str(error),
        seconds={"sample": seconds},
    )
