"""Stand-ins for the parts of a run. None needs torch, executes a candidate or starts a process.

A fake policy replies `right` or `wrong`; the fake environment and the fake evaluator take these words for the outcome:

    from kernelrl_testing.fakes import FakeEnvironment, FakePolicy
    from kernelrl_testing.training import make_recipe

    policy = FakePolicy(replies=["wrong", "right 2.5"])
    environment = FakeEnvironment(make_recipe())

Every method of `FakePolicy` first awaits `before`: a subclass overrides it to wait, to count or to raise.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.environment.retrieval import RetrievedExamples
from kernelrl_core.environment.scoring import PromptExamples
from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.interfaces.policies import PolicyCapabilities, PolicyContext, TrainablePolicy
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.prompts.composer import FittedPrompt
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.types import (
    Evaluation,
    EvaluationRequest,
    Example,
    Extraction,
    Message,
    Outcome,
    Prompt,
    Reply,
    SampleId,
    Score,
    Task,
    Turn,
)
from kernelrl_core.types.training import Loss, LossSample, SamplingSettings, TrainingSample, Update
from kernelrl_testing.values import make_candidate, make_evaluation, make_reply, make_turn

__all__ = ["FakeComposer", "FakeEnvironment", "FakeEvaluator", "FakePolicy", "FakeTasks", "numbered_tasks"]


class FakePolicy(TrainablePolicy):
    """Replies `right` with probability `weight`, or gives `replies` in order.

    A reply is a function of weight, prompt length and seed. An update adds the learning rate times the positive
    advantages to `weight`. Log-probabilities equal the sampler's; those of the reference policy are 0.1 lower.

    Args:
        replies: texts, replies, or exceptions to raise, in the order of the requests. Later requests wait forever.
    """

    context_tokens = 100_000
    capabilities = PolicyCapabilities(
        losses=frozenset({"importance_sampling", "ppo"}),
        ratios=frozenset({"token", "sequence"}),
        deterministic=True,
        streams=True,
        logprobs=True,
        reference=True,
        tempered=True,
    )

    def __init__(self, weight: float = 0.4, replies: Sequence[str | Reply | BaseException] | None = None) -> None:
        self.weight = weight
        self.calls: list[str] = []
        """Names of the methods that were called, in order."""
        self.requests: list[tuple[Prompt, SamplingSettings]] = []
        self.updates: list[Update] = []
        self.accumulated: list[tuple[Sequence[LossSample], Loss]] = []
        """Arguments of `backward`."""
        self.concurrent = self.most_concurrent = 0
        """Replies that are being sampled, and the most there were at once."""
        self.replies = None if replies is None else list(replies)

    async def before(self, method: str, argument: Any) -> None:
        """Called by every asynchronous method with its first argument."""
        await asyncio.sleep(0)

    async def _enter(self, method: str, argument: Any) -> None:
        self.calls.append(method)
        await self.before(method, argument)

    async def start(self, context: PolicyContext) -> None:
        await self._enter("start", context)

    def render(self, messages: Sequence[Message]) -> Prompt:
        """A token for each message."""
        return Prompt(tuple(messages), tuple(range(len(messages))))

    async def sample(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        self.requests.append((prompt, settings))
        self.concurrent += 1
        self.most_concurrent = max(self.most_concurrent, self.concurrent)
        try:
            await self._enter("sample", prompt)
        finally:
            self.concurrent -= 1
        if self.replies is None:
            return self.reply(prompt, settings)
        if not self.replies:
            await asyncio.Event().wait()
        given = self.replies.pop(0)
        if isinstance(given, BaseException):
            raise given
        return given if isinstance(given, Reply) else self.reply_with(given)

    def reply(self, prompt: Prompt, settings: SamplingSettings) -> Reply:
        """The reply where none is given; a subclass may override it."""
        right = random.Random(f"{settings.seed}{len(prompt.tokens)}").random() < self.weight
        return self.reply_with("right" if right else "wrong")

    def reply_with(self, text: str) -> Reply:
        """A reply of two tokens with this text."""
        return make_reply(text, (1, 2), logprobs=(-0.1, -0.2))

    async def logprobs(
        self, samples: Sequence[TrainingSample], weights: Literal["current", "reference"]
    ) -> Sequence[Sequence[float]]:
        await self._enter("logprobs", weights)
        return [[value - 0.1 * (weights == "reference") for value in sample.sampler_logprobs] for sample in samples]

    async def backward(self, samples: Sequence[LossSample], loss: Loss) -> None:
        self.accumulated.append((samples, loss))
        await self._enter("backward", samples)

    async def update(self, update: Update) -> Mapping[str, float]:
        await self._enter("update", update)
        self.updates.append(update)
        signal = sum(max(sample.advantages[0], 0.0) for substep in update.substeps for sample in substep)
        self.weight += update.optimizer.learning_rate * signal
        return {"loss": -signal}

    async def save(self, directory: Path) -> Mapping[str, Any]:
        (directory / "weight.json").write_text(json.dumps(self.weight))
        return {"file": "weight.json"}

    async def load(self, state: Mapping[str, Any], directory: Path) -> None:
        self.weight = json.loads((directory / state["file"]).read_text())

    async def begin_from(self, state: Mapping[str, Any], directory: Path) -> None:
        await self._enter("begin_from", state)
        await self.load(state, directory)


class FakeEvaluator(Evaluator):
    """Returns `evaluation(request)`, raises it where it is an exception, and remembers the requests.

    Args:
        evaluation: default: correct where the source contains the word `right`, otherwise incorrect.
    """

    def __init__(
        self,
        evaluation: Callable[[EvaluationRequest], Evaluation | BaseException] | None = None,
        *,
        capacity: int = 64,
        seconds: float = 0.0,
    ) -> None:
        self.capacity, self.seconds = capacity, seconds
        self.requests: list[EvaluationRequest] = []
        self.evaluation = evaluation or _evaluation_by_word

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.requests.append(request)
        await asyncio.sleep(self.seconds)
        found = self.evaluation(request)
        if isinstance(found, BaseException):
            raise found
        return found


def _evaluation_by_word(request: EvaluationRequest) -> Evaluation:
    return make_evaluation(Outcome.CORRECT if "right" in request.source else Outcome.INCORRECT)


def numbered_tasks(**sizes: int) -> list[Task]:
    """Tasks `SPLIT/0`, … with references `reference 0 of SPLIT`, …: `numbered_tasks(train=5, held_out=3)`.

    Their levels are 1 and 2 in turn. The references do not parse.
    """
    return [
        Task(f"{split}/{index}", f"reference {index} of {split}", split, level=1 + index % 2)
        for split, size in sizes.items()
        for index in range(size)
    ]


class FakeTasks(TaskSource):
    """The tasks it is given; default: four of each of the splits `train` and `held_out`."""

    def __init__(self, tasks: Sequence[Task] | None = None) -> None:
        self._tasks = numbered_tasks(train=4, held_out=4) if tasks is None else tasks

    def splits(self) -> Sequence[str]:
        return tuple(dict.fromkeys(task.split for task in self._tasks))

    def tasks(self, split: str) -> Sequence[Task]:
        if split not in self.splits():
            raise UsageError(f"no split {split!r}; known: {', '.join(self.splits())}")
        return [task for task in self._tasks if task.split == split]


class FakeComposer:
    """Prompts of one message with the reference, and one for the feedback on each turn before."""

    def fit(
        self,
        task: Task,
        *,
        render: Any,
        max_tokens: int,
        turns: Sequence[Turn],
        examples: Sequence[Example] = (),
        **_: Any,
    ) -> FittedPrompt:
        """See `Composer.fit`."""
        texts = (task.reference, *(turn.feedback for turn in turns))
        prompt = render([Message("user", text) for text in texts])
        return FittedPrompt(prompt, max_tokens, tuple(examples))


class FakeEnvironment:
    """Evaluates by the text of the reply: `right`, `right SPEEDUP`, and anything else is incorrect.

    Args:
        errors: sample id -> exception that its evaluation raises.
    """

    def __init__(
        self,
        recipe: Recipe | None = None,
        *,
        tasks: TaskSource | None = None,
        composer: Any = None,
        errors: Mapping[SampleId, BaseException] | None = None,
    ) -> None:
        self.recipe = recipe
        self.tasks = tasks or FakeTasks()
        self.composer = composer or FakeComposer()
        self.errors = dict(errors or {})
        self.evaluated: list[SampleId] = []
        self.observed = self.verified = 0
        self.retrieval = None

    async def examples(self, task: Task, recorded: Turn | None = None) -> RetrievedExamples:
        """See `Environment.examples`."""
        return RetrievedExamples()

    async def evaluate_reply(
        self,
        where: SampleId,
        task: Task,
        prompt: Prompt,
        reply: Reply,
        *,
        seconds: Mapping[str, float],
        staleness: int = 0,
        examples: PromptExamples = PromptExamples(),  # noqa: B008  # frozen
    ) -> Turn:
        """See `Environment.evaluate_reply`."""
        self.evaluated.append(where)
        await asyncio.sleep(0)
        if where in self.errors:
            raise self.errors[where]
        turn = self.turn(where, task, reply)
        return attrs.evolve(
            turn,
            id=where,
            task=task,
            prompt=prompt,
            reply=reply,
            seconds=seconds,
            staleness=staleness,
            examples=examples.shown,
            excluded_examples=examples.excluded,
        )

    def turn(self, where: SampleId, task: Task, reply: Reply) -> Turn:
        """The evaluated turn, without prompt, reply and seconds; a subclass may override it."""
        right, _, speedup = reply.text.partition(" ")
        return self.turn_that_is(
            right == "right", where, f"{reply.text} for {task.id}", float(speedup) if speedup else None
        )

    def turn_that_is(self, correct: bool, where: SampleId, source: str = "", speedup: float | None = None) -> Turn:
        """A turn with the score 1 or 0 and feedback that names its number."""
        outcome = Outcome.CORRECT if correct else Outcome.INCORRECT
        return make_turn(
            outcome,
            extraction=Extraction(make_candidate(source or str(where), "fake")),
            evaluation=make_evaluation(outcome, speedup=speedup if correct else None),
            score=Score(float(correct), {"correct": float(correct)}),
            feedback=f"turn {where.turn} was {outcome}",
        )

    async def verify(self, turn: Turn) -> Turn:
        """The first episode of each task fails verification."""
        self.verified += 1
        return attrs.evolve(turn, verified=turn.id.attempt > 0)

    async def observe(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """See `Environment.observe`."""
        self.observed += len(rows)

    def state(self) -> dict[str, Any]:
        """See `Environment.state`."""
        return {"observed": self.observed}

    def restore(self, loop: Mapping[str, Any]) -> None:
        """See `Environment.restore`."""
        self.observed = loop["observed"]
