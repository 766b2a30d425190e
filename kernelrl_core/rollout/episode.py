"""State machine of one episode: `next_prompt` returns a request, `submit` takes its reply.

    while (request := runner.next_prompt()) is not None:
        turn = await runner.submit(request, sampled)

`EpisodeRunner` owns no asyncio task, thread or file, so an episode can be abandoned at any time. Training, held-out
evaluation and the adapters for other libraries all drive this class. `run_episode` drives it with a policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import attrs

from kernelrl_core.environment.environment import Environment
from kernelrl_core.environment.retrieval import RetrievedExamples
from kernelrl_core.environment.scoring import PromptExamples, lost_turn
from kernelrl_core.errors import InfrastructureError, StorageError
from kernelrl_core.monitoring.timeline import split_evaluation
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.recipe.schema import EpisodeSettings, Recipe, SpeedupStop
from kernelrl_core.rollout.sampler import Sampled, Sampler, SampleRequest
from kernelrl_core.types import Episode, Example, ExcludedExample, Message, Prompt, SampleId, ShownExample, Task, Turn
from kernelrl_core.types.seeds import derived_seed, sample_seed
from kernelrl_core.types.training import SamplingSettings

__all__ = [
    "EpisodeId",
    "EpisodeRunner",
    "Recorder",
    "Renderer",
    "is_good_enough",
    "is_verified",
    "logprobs_temperature",
    "lose_episode",
    "reply_limit",
    "run_episode",
    "run_turn",
]


@attrs.frozen
class EpisodeId:
    """Identifies an episode within a run."""

    purpose: Literal["train", "eval"]
    """Part of the sampling seeds; selects the temperature and the share of verified turns."""
    step: int
    """Training step, from 0. For a held-out evaluation: number of updates before it."""
    task_index: int
    """Index of the task within the step's batch."""
    episode: int
    """Index among the episodes of the task."""
    other_turns: int | None = None
    """In a search: turns of the episode that its prompts do not show, before the next one. None: no search."""

    def turn(self, number: int) -> SampleId:
        """Id of a turn of the episode, counted from 0."""
        return SampleId(self.step, self.task_index, self.episode, number + (self.other_turns or 0))


class Renderer(Protocol):
    """Chat template and tokenizer of the sampled model. Every policy is a renderer."""

    context_tokens: int
    """Maximum number of tokens of prompt plus reply."""

    def render(self, messages: Sequence[Message]) -> Prompt:
        """The prompt that continues the messages, with its token ids."""
        ...


class EpisodeRunner:
    """The state of one episode.

    Args:
        examples: retrieved examples for the prompts.
        turns: finished turns of an interrupted run, in order. They are not sampled or evaluated again.
    """

    def __init__(
        self,
        environment: Environment,
        task: Task,
        id: EpisodeId,  # noqa: A002
        renderer: Renderer,
        *,
        examples: RetrievedExamples = RetrievedExamples(),  # noqa: B008  # frozen
        turns: Sequence[Turn] = (),
    ) -> None:
        self.id, self.task = id, task
        self._environment, self._renderer, self._retrieved = environment, renderer, examples
        self.turns = tuple(turns)
        """Finished turns."""
        self._request: SampleRequest | None = None
        self._examples = PromptExamples()

    @property
    def episode(self) -> Episode:
        """The turns so far."""
        return Episode(self.turns)

    def next_prompt(self) -> SampleRequest | None:
        """The request of the next turn; None after the end of the episode. Repeated calls return the same request until
        its turn is submitted.

        Raises:
            UsageError: the prompt does not fit into the context even without examples and earlier turns.
            KernelRLError: the renderer failed.
        """
        if self._request is None and not self._is_over():
            self._request = self._make_request(self.id.turn(len(self.turns)))
        return self._request

    async def submit(self, request: SampleRequest, sampled: Sampled) -> Turn:
        """Evaluate the reply to `request` and return the finished turn. If this raises or is cancelled, the episode is
        unchanged.

        Raises:
            ValueError: `request` is not the current request.
            InfrastructureError: the evaluation failed; see `submit_lost`.
            KernelRLError: a plugin failed, or the task is unusable.
        """
        self._require_current(request)
        turn = await self._environment.evaluate_reply(
            request.id,
            self.task,
            request.prompt,
            sampled.reply,
            seconds=sampled.seconds,
            staleness=sampled.staleness,
            examples=self._examples,
        )
        if is_verified(turn, self._environment.recipe, self.id.purpose):
            turn = await self._environment.verify(turn)
        return self._add(turn)

    def submit_lost(self, request: SampleRequest, error: InfrastructureError, sampled: Sampled | None = None) -> Turn:
        """Record a masked turn for an infrastructure error. It ends the episode.

        Args:
            sampled: the reply, if sampling succeeded and the evaluation failed.

        Raises:
            ValueError: `request` is not the current request.
        """
        self._require_current(request)
        turn = lost_turn(
            request.id,
            self.task,
            request.prompt,
            error,
            reply=sampled.reply if sampled is not None else None,
            seconds=sampled.seconds if sampled is not None else {},
            examples=self._examples,
        )
        return self._add(turn)

    def _make_request(self, where: SampleId) -> SampleRequest:
        environment, recipe = self._environment, self._environment.recipe
        with plugin_boundary(f"policy {recipe.policy.use!r}", "render"):
            retrieved = self._retrieved.examples if self._retrieves() else ()
            fitted = environment.composer.fit(
                self.task,
                render=self._renderer.render,
                context_tokens=self._renderer.context_tokens,
                max_tokens=reply_limit(recipe, where.step),
                examples=retrieved,
                turns=self.turns,
            )
        self._examples = self._examples_of(retrieved, fitted.examples) if self._retrieves() else PromptExamples()
        sampling, temperature = recipe.sampling, recipe.sampling.temperature
        if self.id.purpose == "eval" and recipe.eval.temperature is not None:
            temperature = recipe.eval.temperature
        settings = SamplingSettings(
            max_tokens=fitted.max_tokens,
            temperature=temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stop=sampling.stop,
            seed=sample_seed(recipe.seed, self.id.purpose, where, self.task.id),
            logprobs_temperature=logprobs_temperature(recipe),
        )
        return SampleRequest(where, fitted.prompt, settings)

    def _retrieves(self) -> bool:
        """Whether the current turn shows retrieved examples."""
        use = self._environment.recipe.retriever
        return use is not None and use.shows_at(len(self.turns))

    def _examples_of(self, retrieved: Sequence[Example], shown: Sequence[Example]) -> PromptExamples:
        """The examples of a prompt, and those for which it was too long."""
        own = ShownExample("", "backend")
        dropped = [example for example in retrieved if example not in shown]
        return PromptExamples(
            shown=tuple(
                ShownExample(example.id, example.origin, example.similarity) if example in retrieved else own
                for example in shown
            ),
            excluded=(
                *self._retrieved.excluded,
                *(ExcludedExample(example.id, example.origin, example.similarity, "length") for example in dropped),
            ),
        )

    def _is_over(self) -> bool:
        if len(self.turns) >= self._environment.recipe.episode.turns:
            return True
        settings = self._environment.recipe.episode
        return bool(self.turns) and (self.turns[-1].masked or is_good_enough(self.turns[-1], settings))

    def _require_current(self, request: SampleRequest) -> None:
        if request is not self._request:
            raise ValueError(f"{request.id} is not the current request of this episode")

    def _add(self, turn: Turn) -> Turn:
        if self.id.other_turns is not None:
            turn = attrs.evolve(turn, parents=tuple(earlier.id.turn for earlier in self.turns))
        self.turns, self._request = (*self.turns, turn), None
        return turn


class Recorder(Protocol):
    """Writes the progress of episodes to disk and enforces the budget."""

    def require_budget(self) -> None:
        """
        Raises:
            BudgetReached: the budget is spent.
        """

    async def begin(self, purpose: Literal["train", "eval"], where: SampleId) -> None:
        """Record that a reply is about to be sampled. Returns after the write to disk."""

    async def record(self, purpose: Literal["train", "eval"], turn: Turn) -> None:
        """Record a finished turn. Returns after the write to disk."""


async def run_episode(runner: EpisodeRunner, sampler: Sampler, recorder: Recorder) -> Episode:
    """Run an episode to its end: sample, evaluate and record every turn.

    Raises:
        BudgetReached: the budget is spent; raised before a reply is sampled. Finished turns are recorded.
        StorageError: the run directory cannot be written.
        KernelRLError: a plugin failed, or the task is unusable.
    """
    while (request := runner.next_prompt()) is not None:
        await run_turn(runner, request, sampler, recorder)
    return runner.episode


async def run_turn(runner: EpisodeRunner, request: SampleRequest, sampler: Sampler, recorder: Recorder) -> Turn:
    """Sample, evaluate and record one turn of an episode. Raises like `run_episode`.

    Args:
        request: the current request of `runner`.
    """
    purpose = runner.id.purpose
    sampled: Sampled | None = None
    try:
        async with sampler.slot(request.id) as slot:  # released before the evaluation
            recorder.require_budget()
            await recorder.begin(purpose, request.id)
            sampled = await slot.sample(request)
        with sampler.timeline.span("evaluating") as span:
            turn = await runner.submit(request, sampled)
        split_evaluation(span, turn)
        sampler.observe(request.id, sampled.seconds["sample"] + span.seconds())
    except StorageError:  # a run that cannot record its turns must stop: sampling costs money
        raise
    except InfrastructureError as error:
        turn = runner.submit_lost(request, error, sampled)
    await recorder.record(purpose, turn)
    return turn


def is_good_enough(turn: Turn, settings: EpisodeSettings) -> bool:
    """Whether `episode.stop` ends an episode after a turn."""
    if isinstance(settings.stop, SpeedupStop):
        return turn.speedup is not None and turn.speedup >= settings.stop.speedup
    return settings.stop == "correct" and turn.correct


async def lose_episode(runner: EpisodeRunner, error: InfrastructureError, recorder: Recorder) -> Episode:
    """End an episode whose examples could not be retrieved: record its next turn as masked.

    Raises:
        StorageError: the run directory cannot be written.
    """
    if (request := runner.next_prompt()) is not None:
        await recorder.begin(runner.id.purpose, request.id)
        await recorder.record(runner.id.purpose, runner.submit_lost(request, error))
    return runner.episode


def is_verified(turn: Turn, recipe: Recipe, purpose: Literal["train", "eval"]) -> bool:
    """Whether `verify` of the recipe selects a turn for verification."""
    if not turn.correct or turn.candidate is None:
        return False
    share = recipe.verify.eval if purpose == "eval" else recipe.verify.train
    # Seeded by the kernel, not by the sample id: equal kernels are all verified or none, also after a resume.
    uniform = derived_seed(recipe.seed, "verify", turn.task.sha256, turn.candidate.sha256)
    return uniform < share * 2**63


def reply_limit(recipe: Recipe, step: int) -> int:
    """Reply limit in tokens at a step: `sampling.max_tokens`, or that of `sampling.extend` from its step on."""
    extend = recipe.sampling.extend
    return extend.max_tokens if extend is not None and step >= extend.after_step else recipe.sampling.max_tokens


def logprobs_temperature(recipe: Recipe) -> float:
    """Temperature of the log-probabilities in training: `sampling.temperature` or 1 (`train.logprobs_at`). 1 at
    sampling temperature 0, which has no distribution."""
    at = recipe.train.logprobs_at
    if at is None:
        at = "sampling" if recipe.policy.options.capabilities().tempered else 1
    return recipe.sampling.temperature or 1.0 if at == "sampling" else 1.0
