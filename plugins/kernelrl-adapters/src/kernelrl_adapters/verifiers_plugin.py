"""Taskset, environment and harness for verifiers: `vf-eval kernelrl-adapters --env.taskset.recipe NAME`.

An episode is an attempt at a task, and each of its turns a trace of its own, since the core words every prompt anew:
what of earlier turns is shown is up to the recipe's `history`. The harness asks the model once and runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import openai
import verifiers.v1 as vf
from pydantic import Field

from kernelrl_adapters.shared import make_environment, read_recipe, recipe_of
from kernelrl_core.api.episodes import Environment, EpisodeId, EpisodeRunner, Sampled, Turn
from kernelrl_core.api.errors import InfrastructureError, UsageError
from kernelrl_core.api.policies import Message, Prompt, Reply, SamplingSettings, estimated_prompt
from kernelrl_core.api.tasks import Task

__all__ = ["KernelEnv", "KernelEnvConfig", "KernelHarness", "KernelTaskset", "KernelTasksetConfig", "load_environment"]

PLUGIN = "kernelrl-adapters"
"""Name by which verifiers finds this package."""


class KernelTasksetConfig(vf.TasksetConfig):
    """Which tasks, judged how."""

    recipe: str = ""
    """Recipe of kernelrl: a path, or the name of a bundled one."""
    overrides: list[str] = Field(default_factory=list)
    """Changes to the recipe, as on the command line: `evaluation.trials=3`."""
    split: str | None = None
    """Split of the tasks; the recipe's `eval.split` when left out."""


class KernelTaskData(vf.TaskData):
    """One prompt of a task."""

    sampling: dict[str, Any] = Field(default_factory=dict)
    """Fields of the request as the recipe says; the evaluator's own sampling options come before them."""


class KernelTask(vf.Task[KernelTaskData]):
    """A task by its id. `KernelEnv` judges it, so it has no rewards of its own."""

    @property
    def key(self) -> str:
        return self.data.id or self.hash


class LazyEnvironment:
    """The environment of a taskset and its tasks, made when they are first needed."""

    def __init__(self, config: KernelTasksetConfig) -> None:
        self._config = config
        self._environment: Environment | None = None

    @property
    def environment(self) -> Environment:
        """Judges the tasks.

        Raises:
            UsageError: no recipe is named, or it has mistakes.
        """
        if self._environment is None:
            if not self._config.recipe:
                raise UsageError("no recipe is named", fix="--env.taskset.recipe NAME; kernelrl recipes list")
            self._environment = make_environment(recipe_of(read_recipe(self._config.recipe, self._config.overrides)))
        return self._environment

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """The tasks by their ids, in the order of their source."""
        settings = self.environment.recipe.eval
        found = self.environment.tasks.tasks(self._config.split or settings.split)
        return {task.id: task for task in list(found)[: settings.max_tasks]}

    async def aclose(self) -> None:
        """End the environment; the next use makes another."""
        environment, self._environment = self._environment, None
        if environment is not None:
            await environment.aclose()


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """The tasks of a recipe."""

    def __init__(self, config: KernelTasksetConfig) -> None:
        super().__init__(config)
        # Selections of a taskset are shallow copies; they share it.
        self.court = LazyEnvironment(config)

    def load(self) -> Iterable[KernelTask]:
        for task in self.court.tasks.values():
            prompt = _messages(self.court.environment.composer.messages(task))
            data = KernelTaskData(id=task.id, name=task.name or task.id, prompt=prompt)
            yield KernelTask(data, self.config.task)


class KernelHarness(vf.Harness[vf.HarnessConfig]):
    """Asks the model for one reply and does nothing with it."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        prompt = data.prompt if isinstance(data.prompt, list) else [vf.UserMessage(content=data.prompt or "")]
        body = {
            **(data.sampling if isinstance(data, KernelTaskData) else {}),
            "model": ctx.model,
            "messages": [{"role": message.role, "content": message.content} for message in prompt],
        }
        async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=None) as client:
            try:
                await client.post("/chat/completions", body=body, cast_to=object)
            except openai.OpenAIError as error:
                return vf.ProgramResult(1, "", f"{type(error).__name__}: {error}")
        return vf.ProgramResult(0, "", "")


class KernelEnvConfig(vf.EnvConfig):
    """The model under evaluation or training, and how its context is used."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The model that writes kernels."""
    context_tokens: int = 32768
    """Longest prompt and reply together. Prompts are counted at 3 bytes a token."""


class KernelEnv(vf.Env[KernelEnvConfig]):
    """Plays the recipe's episodes: its turns, prompts, judge, rewards and feedback."""

    @property
    def court(self) -> LazyEnvironment:
        """Where episodes are judged.

        Raises:
            UsageError: the taskset is another one's.
        """
        if not isinstance(self.taskset, KernelTaskset):
            raise UsageError(f"{PLUGIN} plays the tasks of its own taskset alone")
        return self.taskset.court

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        court = self.court
        place = EpisodeId("eval", 0, task.data.idx or 0, 0)
        chosen = court.tasks[task.data.id or ""]
        examples = await court.environment.examples(chosen)
        renderer = EstimatedRenderer(self.config.context_tokens)
        runner = EpisodeRunner(court.environment, chosen, place, renderer, examples=examples)
        while (request := runner.next_prompt()) is not None:
            asked = task.with_data(prompt=_messages(request.prompt.messages), sampling=_body(request.settings))
            trace = await agents.agent.run(asked)
            if not trace.ok:
                return  # the trace says why
            turn = await runner.submit(request, Sampled(_reply(trace)))
            if turn.masked:
                raise InfrastructureError(turn.message)
            _record(trace, turn)

    async def stop(self) -> None:
        await self.court.aclose()


@dataclass(frozen=True)
class EstimatedRenderer:
    """Counts tokens for a server that applies its own chat template."""

    context_tokens: int

    def render(self, messages: Sequence[Message]) -> Prompt:
        return estimated_prompt(messages)


def load_environment(
    recipe: str, *, overrides: Sequence[str] = (), split: str | None = None, context_tokens: int = 32768
) -> vf.Env[Any]:
    """The environment of a recipe.

    Args:
        recipe: a path, or the name of a bundled recipe.
        overrides: `key=value`, as on the command line.
        split: split of the tasks; the recipe's `eval.split` when left out.
        context_tokens: longest prompt and reply together.

    Raises:
        UsageError: the recipe is unknown or has mistakes.
        MissingPrerequisite: this machine lacks something for it.
    """
    taskset = KernelTasksetConfig(id=PLUGIN, recipe=recipe, overrides=list(overrides), split=split)
    return vf.load_environment(KernelEnvConfig(taskset=taskset, context_tokens=context_tokens))


def _messages(messages: Sequence[Message]) -> list[Any]:
    kinds = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
    return [kinds[message.role](content=message.content) for message in messages]


def _body(settings: SamplingSettings) -> dict[str, Any]:
    # No seed: this evaluator does not number the attempts at a task, which must differ.
    body: dict[str, Any] = {
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
    }
    return body | ({"stop": list(settings.stop)} if settings.stop else {})


def _reply(trace: vf.Trace) -> Reply:
    message = trace.assistant_messages[-1]
    text, thinking = message.content or "", message.reasoning_content or None
    whole = f"<think>\n{thinking}\n</think>\n\n{text}" if thinking else text
    reason: Literal["stop", "length"] = "length" if trace.is_truncated else "stop"
    return Reply(whole, (), (), reason, thinking)


def _record(trace: vf.Trace, turn: Turn) -> None:
    trace.record_reward("score", turn.score.total)
    trace.record_metrics({f"part/{name}": value for name, value in turn.score.parts.items()})
    trace.record_metrics(
        {
            "correct": turn.correct,
            "compiled": turn.evaluation is not None and turn.evaluation.compiled,
            f"outcome/{turn.outcome.value}": 1.0,
            f"verdict/{turn.verdict.value}": 1.0,
        }
    )
    if turn.speedup is not None:
        trace.record_metric("speedup", turn.speedup)
