"""The environment for the training loop of tinker-cookbook: pass `KernelDatasetBuilder` to `rl.train.Config`.

A group is the episodes of one task. A batch is the tasks of one step, as the recipe schedules them. The reward of an
environment step is the score of the turn. The cookbook computes advantages and losses and runs the optimizer: it sums
the rewards of an episode and subtracts the group's mean. The recipe keys `returns`, `advantage` and most of `train`
are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

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

from kernelrl_adapters.chat import ChatRenderer, recommended_renderer
from kernelrl_adapters.shared import read_recipe, recipe_of, shared_environment, turn_metrics
from kernelrl_core.api.episodes import (
    EpisodeId,
    EpisodeRunner,
    Sampled,
    SampleRequest,
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
    """One episode."""

    def __init__(self, runner: EpisodeRunner, renderer: ChatRenderer, max_tokens: int) -> None:
        self._runner, self._renderer, self._max_tokens = runner, renderer, max_tokens

    async def initial_observation(self) -> tuple[tinker.ModelInput, Any] | InitialObservationOverflow:
        request = self._runner.next_prompt()
        assert request is not None, "an episode has at least one turn"
        if self._fits(request):
            return self._observation(request)
        overflow = f"prompt of {len(request.prompt.tokens)} tokens: no space for a reply of {self._max_tokens} tokens"
        return InitialObservationOverflow(0.0, {"stop/max_tokens": 1.0}, {"overflow": overflow})

    async def step(self, action: Action, *, extra: ActionExtra | None = None) -> StepResult:
        request = self._runner.next_prompt()
        assert request is not None, "the episode has ended"
        cut = (extra or {}).get("stop_reason") == "length"
        turn = await self._runner.submit(request, Sampled(self._renderer.reply(request.prompt, action, cut=cut)))
        if turn.masked:
            raise InfrastructureError(turn.message)
        metrics, following = turn_metrics(turn), self._runner.next_prompt()
        if following is not None and not self._fits(following):
            following, metrics = None, {**metrics, "stop/max_tokens": 1.0}
        observation, stop = self._observation(following) if following else (tinker.ModelInput.empty(), [])
        return StepResult(
            reward=turn.score.total,
            episode_done=following is None,
            next_observation=observation,
            next_stop_condition=stop,
            metrics=metrics,
            logs=_logs(turn),
        )

    def _observation(self, request: SampleRequest) -> tuple[tinker.ModelInput, Any]:
        return tinker.ModelInput.from_ints(list(request.prompt.tokens)), self._renderer.stops()

    def _fits(self, request: SampleRequest) -> bool:
        # The cookbook has one token limit for all replies: it cannot be lowered for a long prompt.
        return request.settings.max_tokens >= self._max_tokens


@dataclass
class KernelGroupBuilder(EnvGroupBuilder):
    """The episodes of one task."""

    recipe: str
    """The recipe as JSON, see `shared.read_recipe`."""
    task: Task
    speech: ChatRenderer
    attempts: int
    purpose: Literal["train", "eval"]
    step: int
    index: int
    """Index of the task within the step."""

    async def make_envs(self) -> Sequence[Env]:
        environment = await shared_environment(self.recipe)
        limit, examples = reply_limit(environment.recipe, self.step), await environment.examples(self.task)
        places = [EpisodeId(self.purpose, self.step, self.index, number) for number in range(self.attempts)]
        runners = [EpisodeRunner(environment, self.task, place, self.speech, examples=examples) for place in places]
        return [KernelEnv(runner, self.speech, limit) for runner in runners]

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
    purpose: Literal["train", "eval"]

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        return [
            KernelGroupBuilder(self.recipe, task, self.speech, self.attempts, self.purpose, index, place)
            for place, task in enumerate(self.batches[index])
        ]

    def __len__(self) -> int:
        return len(self.batches)


@chz.chz
class KernelDatasetBuilder(RLDatasetBuilder):
    """Builds the training set and the test set of a recipe. `await` it for `(train, test)`."""

    recipe: str
    """Path, or name of a bundled recipe."""
    model_name: str
    """Model whose tokenizer is used, as in `train.Config`."""
    overrides: Sequence[str] = ()
    """Overrides of recipe keys, as on the command line: `train.group_size=4`."""
    renderer_name: str | None = None
    """Name of a cookbook renderer, or `chat_template` for the tokenizer's own template. None: the renderer that the
    cookbook recommends for the model."""
    context_tokens: int = 32768
    """Maximum tokens of prompt and reply together. `train.Config.max_tokens` must equal the recipe's
    `sampling.max_tokens`."""
    test: bool = True
    """Use the recipe's `eval.split` as the test set. False: no test set."""

    async def __call__(self) -> tuple[KernelDataset, KernelDataset | None]:
        """The training set, and the test set or None.

        Raises:
            UsageError: the recipe is invalid or does not suit the model, or the model needs a `renderer_name`.
        """
        text = read_recipe(self.recipe, self.overrides)
        recipe = recipe_of(text)
        source = registry().make("tasks", recipe.tasks)
        tasks, _ = training_tasks(source, recipe.train, recipe.eval.split)
        order = schedule([task.id for task in tasks], recipe.train, recipe.seed)
        batches = tuple(tuple(tasks[index] for index in step) for step in order)
        renderer = self.renderer_name or recommended_renderer(self.model_name)
        chat = ChatRenderer(self.model_name, renderer, self.context_tokens)
        require_kept_thinking(recipe, chat.render)
        training = KernelDataset(text, batches, chat, recipe.train.group_size, "train")
        if not self.test:
            return training, None
        held_out = (tuple(eval_tasks(source, recipe.eval)),)
        return training, KernelDataset(text, held_out, chat, recipe.eval.samples, "eval")


def _logs(turn: Turn) -> dict[str, str | int | float]:
    kernel = turn.candidate.sha256 if turn.candidate else ""
    return {"task": turn.task.id, "outcome": turn.outcome.value, "kernel_sha256": kernel, "told": turn.message[:500]}
