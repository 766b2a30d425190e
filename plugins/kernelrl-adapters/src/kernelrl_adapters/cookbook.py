"""The environment for the training loop of tinker-cookbook: give `KernelDatasetBuilder` to `rl.train.Config`.

A group is the attempts at one task, a batch the tasks of one step as the recipe schedules them, and a step's reward the
turn's score. Advantages, losses and the optimizer are the cookbook's own: it sums the rewards of an attempt and takes
their distance from the group's mean, so the recipe says nothing about learning here: `returns`,
`advantage` and most of `train` are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import chz
import tinker
from tinker_cookbook.rl.types import (
    Action,
    ActionExtra,
    Env,
    EnvGroupBuilder,
    InitialObservationOverflow,
    RLDataset,
    RLDatasetBuilder,
    StepResult,
)

from kernelrl_adapters.shared import read_recipe, recipe_of, shared_environment
from kernelrl_adapters.speech import ChatRenderer, recommended_renderer
from kernelrl_adapters.stepping import Question, SteppedEpisode
from kernelrl_core.api.episodes import (
    Turn,
    eval_tasks,
    registry,
    reply_limit,
    require_kept_thinking,
    schedule,
    training_tasks,
)
from kernelrl_core.api.errors import InfrastructureError
from kernelrl_core.api.tasks import Task

__all__ = ["KernelDataset", "KernelDatasetBuilder", "KernelEnv", "KernelGroupBuilder"]


class KernelEnv(Env):
    """One attempt at a task."""

    def __init__(self, episode: SteppedEpisode, speech: ChatRenderer, max_tokens: int) -> None:
        self._episode, self._speech, self._max_tokens = episode, speech, max_tokens
        self._question: Question | None = None

    async def initial_observation(self) -> tuple[tinker.ModelInput, Any] | InitialObservationOverflow:
        self._question = question = await self._episode.begin()
        if self._leaves_room(question):
            return self._observation(question)
        await self._episode.aclose()
        told = f"{len(question.prompt.tokens)} tokens of prompt leave no room for {self._max_tokens} tokens of reply"
        return InitialObservationOverflow(0.0, {"stop/max_tokens": 1.0}, {"overflow": told})

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        assert self._question is not None, "the first observation comes before a step"
        cut = (extra or {}).get("stop_reason") == "length"
        turn, question = await self._episode.answer(self._speech.reply(self._question.prompt, action, cut=cut))
        if turn.masked:
            raise InfrastructureError(turn.message)
        metrics = _metrics(turn)
        if question is not None and not self._leaves_room(question):
            await self._episode.aclose()
            question, metrics = None, {**metrics, "stop/max_tokens": 1.0}
        self._question = question
        observation, stop = self._observation(question) if question else (tinker.ModelInput.empty(), [])
        return StepResult(
            reward=turn.score.total,
            episode_done=question is None,
            next_observation=observation,
            next_stop_condition=stop,
            metrics=metrics,
            logs=_logs(turn),
        )

    async def aclose(self) -> None:
        """Leave the attempt where it stands."""
        await self._episode.aclose()

    def _observation(self, question: Question) -> tuple[tinker.ModelInput, Any]:
        return tinker.ModelInput.from_ints(list(question.prompt.tokens)), self._speech.stops()

    def _leaves_room(self, question: Question) -> bool:
        # The cookbook samples with one limit, so a reply's limit cannot be lowered for a long prompt.
        return question.settings.max_tokens >= self._max_tokens


@dataclass
class KernelGroupBuilder(EnvGroupBuilder):
    """The attempts at one task."""

    recipe: str
    """The recipe as text, see `shared.read_recipe`."""
    task: Task
    speech: ChatRenderer
    attempts: int
    purpose: str
    """`train` or `eval`."""
    step: int
    index: int
    """Place of the task within the step."""
    _envs: list[KernelEnv] = field(default_factory=list, repr=False)
    """All that were made, again for each retry."""

    async def make_envs(self) -> Sequence[Env]:
        environment = await shared_environment(self.recipe)
        limit = reply_limit(environment.recipe, self.step)
        made: list[KernelEnv] = []
        for attempt in range(self.attempts):
            episode = SteppedEpisode(
                environment,
                self.task,
                render=self.speech.render,
                context_tokens=self.speech.context_tokens,
                purpose=self.purpose,
                place=(self.step, self.index, attempt),
            )
            made.append(KernelEnv(episode, self.speech, limit))
        self._envs += made
        return made

    async def cleanup(self) -> None:
        for env in self._envs:
            await env.aclose()
        self._envs.clear()

    def logging_tags(self) -> list[str]:
        level = [] if self.task.level is None else [f"level_{self.task.level}"]
        return ["kernelrl", *level]


@dataclass(frozen=True)
class KernelDataset(RLDataset):
    """The steps of a recipe."""

    recipe: str
    batches: tuple[tuple[Task, ...], ...]
    """Tasks of each step."""
    speech: ChatRenderer
    attempts: int
    purpose: str

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        return [
            KernelGroupBuilder(self.recipe, task, self.speech, self.attempts, self.purpose, index, place)
            for place, task in enumerate(self.batches[index])
        ]

    def __len__(self) -> int:
        return len(self.batches)


@chz.chz
class KernelDatasetBuilder(RLDatasetBuilder):
    """Training and test set of a recipe. `await` it for `(train, test)`."""

    recipe: str
    """Path, or name of a bundled recipe."""
    model_name: str
    """Model whose tokenizer is used, as in `train.Config`."""
    overrides: Sequence[str] = ()
    """Changes to the recipe, as on the command line: `train.group_size=4`."""
    renderer_name: str | None = None
    """Renderer of the cookbook, or `chat_template` for the tokenizer's own template; what the cookbook recommends for
    the model when left out."""
    context_tokens: int = 32768
    """Longest prompt and reply together. `train.Config.max_tokens` must be the recipe's `sampling.max_tokens`."""
    test: bool = True
    """Whether the recipe's `eval.split` is the test set."""

    async def __call__(self) -> tuple[KernelDataset, KernelDataset | None]:
        """Raises UsageError: the recipe has mistakes or does not suit the model, or that needs a `renderer_name`."""
        text = read_recipe(self.recipe, self.overrides)
        recipe = recipe_of(text)
        source = registry().make("tasks", recipe.tasks)
        tasks, _ = training_tasks(source, recipe.train)
        order = schedule([task.id for task in tasks], recipe.train, recipe.seed)
        batches = tuple(tuple(tasks[index] for index in step) for step in order)
        renderer = self.renderer_name or recommended_renderer(self.model_name)
        speech = ChatRenderer(self.model_name, renderer, self.context_tokens)
        require_kept_thinking(recipe, speech.render)
        training = KernelDataset(text, batches, speech, recipe.train.group_size, "train")
        if not self.test:
            return training, None
        held_out = (tuple(eval_tasks(source, recipe.eval)),)
        return training, KernelDataset(text, held_out, speech, recipe.eval.samples, "eval")


def _metrics(turn: Turn) -> dict[str, float | int]:
    found: dict[str, float | int] = {
        "correct": float(turn.correct),
        "compiled": float(turn.evaluation is not None and turn.evaluation.compiled),
        "hacked": float(turn.outcome == "hacked"),
        "suspect": float(turn.verdict == "suspect"),
        **{f"reward/{name}": value for name, value in turn.score.parts.items()},
    }
    return found if turn.speedup is None else {**found, "speedup": turn.speedup}


def _logs(turn: Turn) -> dict[str, str | int | float]:
    kernel = turn.candidate.sha256 if turn.candidate else ""
    return {"task": turn.task.id, "outcome": turn.outcome.value, "kernel_sha256": kernel, "told": turn.message[:500]}
