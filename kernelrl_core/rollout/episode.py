"""One episode, driven from outside: it gives prompts, and takes replies.

    while (request := runner.next_prompt()) is not None:
        turn = await runner.submit(request, sampled)

`EpisodeRunner` owns no task, thread or file, so an episode may be dropped at any moment. Training, held-out evaluation
and the adapters for other libraries drive the same class; `run_episode` is the driver for a policy of the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import attrs

from kernelrl_core.environment.environment import Environment
from kernelrl_core.environment.scoring import lost_turn
from kernelrl_core.errors import InfrastructureError, StorageError
from kernelrl_core.monitoring.timeline import split_evaluation
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.recipe.schema import Recipe, SpeedupStop
from kernelrl_core.rollout.sampler import Sampled, Sampler, SampleRequest
from kernelrl_core.types import Episode, Example, Message, Prompt, SampleId, Task, Turn
from kernelrl_core.types.seeds import derived_seed, sample_seed
from kernelrl_core.types.training import SamplingSettings

__all__ = ["EpisodeId", "EpisodeRunner", "Recorder", "Renderer", "reply_limit", "run_episode"]


@attrs.frozen
class EpisodeId:
    """Place of an episode in a run."""

    purpose: Literal["train", "eval"]
    """Keeps the seeds of training and held-out evaluation apart, and selects temperature and share of verification."""
    step: int
    """Step of training; for a held-out evaluation, the number of updates before it."""
    task_index: int
    """Index of the task within the step's batch."""
    episode: int
    """Index among the episodes of the task."""

    def turn(self, number: int) -> SampleId:
        return SampleId(self.step, self.task_index, self.episode, number)


class Renderer(Protocol):
    """Chat template and tokenizer of the model that samples; a policy is one."""

    context_tokens: int
    """Longest prompt and reply together."""

    def render(self, messages: Sequence[Message]) -> Prompt: ...


class EpisodeRunner:
    """The state of one episode.

    Args:
        examples: retrieved examples that the prompts show, best first.
        turns: turns of an interrupted run, in order; they are neither sampled nor evaluated again.
    """

    def __init__(
        self,
        environment: Environment,
        task: Task,
        id: EpisodeId,  # noqa: A002
        renderer: Renderer,
        *,
        examples: Sequence[Example] = (),
        turns: Sequence[Turn] = (),
    ) -> None:
        self.id, self.task = id, task
        self._environment, self._renderer, self._examples = environment, renderer, tuple(examples)
        self.turns = tuple(turns)
        """Turns that are over."""
        self._request: SampleRequest | None = None

    @property
    def episode(self) -> Episode:
        return Episode(self.turns)

    def next_prompt(self) -> SampleRequest | None:
        """The request of the next turn, the same until a turn is submitted; None: the episode is over.

        Raises:
            UsageError: not even the bare task fits into the context.
            KernelRLError: the renderer failed.
        """
        if self._request is None and not self._is_over():
            self._request = self._make_request(self.id.turn(len(self.turns)))
        return self._request

    async def submit(self, request: SampleRequest, sampled: Sampled) -> Turn:
        """Evaluate the reply to a request: the turn it makes. All or nothing: if this raises or is cancelled, the
        episode stands where it was.

        Raises:
            InfrastructureError: the evaluation could not be carried out; see `submit_lost`.
            KernelRLError: a plugin failed, or the task cannot be used.
        """
        self._require_current(request)
        turn = await self._environment.evaluate_reply(
            request.id, self.task, request.prompt, sampled.reply, seconds=sampled.seconds
        )
        if self._is_verified(turn):
            turn = await self._environment.verify(turn)
        return self._add(attrs.evolve(turn, staleness=sampled.staleness) if sampled.staleness else turn)

    def submit_lost(self, request: SampleRequest, error: InfrastructureError, sampled: Sampled | None = None) -> Turn:
        """The masked turn that an infrastructure error leaves; the episode is over with it.

        Args:
            sampled: the reply, where it was sampled and its evaluation failed.
        """
        self._require_current(request)
        reply = sampled.reply if sampled is not None else None
        turn = lost_turn(request.id, self.task, request.prompt, error, reply=reply)
        return self._add(turn if sampled is None else attrs.evolve(turn, seconds=sampled.seconds))

    def _make_request(self, where: SampleId) -> SampleRequest:
        environment, recipe = self._environment, self._environment.recipe
        with plugin_boundary(f"policy {recipe.policy.use!r}", "render"):
            prompt, max_tokens = environment.composer.fit(
                self.task,
                render=self._renderer.render,
                context_tokens=self._renderer.context_tokens,
                max_tokens=reply_limit(recipe, where.step),
                examples=self._shown_examples(),
                turns=self.turns,
            )
        sampling, temperature = recipe.sampling, recipe.sampling.temperature
        if self.id.purpose == "eval" and recipe.eval.temperature is not None:
            temperature = recipe.eval.temperature
        settings = SamplingSettings(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stop=sampling.stop,
            seed=sample_seed(recipe.seed, self.id.purpose, where, self.task.id),
        )
        return SampleRequest(where, prompt, settings)

    def _shown_examples(self) -> tuple[Example, ...]:
        use = self._environment.recipe.retriever
        return () if self.turns and use is not None and use.turns == "first" else self._examples

    def _is_over(self) -> bool:
        if len(self.turns) >= self._environment.recipe.episode.turns:
            return True
        return bool(self.turns) and (self.turns[-1].masked or self._is_good_enough(self.turns[-1]))

    def _is_good_enough(self, turn: Turn) -> bool:
        stop = self._environment.recipe.episode.stop
        if isinstance(stop, SpeedupStop):
            return turn.speedup is not None and turn.speedup >= stop.speedup
        return stop == "correct" and turn.correct

    def _is_verified(self, turn: Turn) -> bool:
        if not turn.correct or turn.candidate is None:
            return False
        recipe = self._environment.recipe
        share = recipe.verify.eval if self.id.purpose == "eval" else recipe.verify.train
        # By the kernel and not by the place: equal kernels are verified once, and a resumed run chooses the same.
        drawn = derived_seed(recipe.seed, "verify", turn.task.sha256, turn.candidate.sha256)
        return drawn < share * 2**63

    def _require_current(self, request: SampleRequest) -> None:
        if request is not self._request:
            raise ValueError(f"{request.id} is not the request that this episode waits for")

    def _add(self, turn: Turn) -> Turn:
        self.turns, self._request = (*self.turns, turn), None
        return turn


class Recorder(Protocol):
    """What an episode leaves behind while it runs."""

    def require_budget(self) -> None:
        """
        Raises:
            BudgetReached: nothing more may be spent.
        """

    async def begin(self, purpose: Literal["train", "eval"], where: SampleId) -> None:
        """A reply is about to be sampled. Returns once that is on disk."""

    async def record(self, purpose: Literal["train", "eval"], turn: Turn) -> None:
        """A turn is over. Returns once it is on disk."""


async def run_episode(runner: EpisodeRunner, sampler: Sampler, recorder: Recorder) -> Episode:
    """Drive an episode to its end with a policy of the core.

    Raises:
        BudgetReached: before a further reply; the turns so far are recorded.
        StorageError: the run cannot be recorded.
    """
    purpose = runner.id.purpose
    while (request := runner.next_prompt()) is not None:
        sampled: Sampled | None = None
        try:
            async with sampler.slot(request.id) as slot:  # not held while the reply is evaluated
                recorder.require_budget()
                await recorder.begin(purpose, request.id)
                sampled = await slot.sample(request)
            with sampler.timeline.span("evaluating") as span:
                turn = await runner.submit(request, sampled)
            split_evaluation(span, turn)
            sampler.observe(request.id, sampled.seconds["sample"] + span.seconds())
        except StorageError:  # what cannot be recorded must not be paid for
            raise
        except InfrastructureError as error:
            turn = runner.submit_lost(request, error, sampled)
        await recorder.record(purpose, turn)
    return runner.episode


def reply_limit(recipe: Recipe, step: int) -> int:
    """`max_tokens` of a step, after the extension."""
    extend = recipe.sampling.extend
    return extend.max_tokens if extend is not None and step >= extend.after_step else recipe.sampling.max_tokens
