"""Taskset, environment and harness for verifiers: `vf-eval kernelrl-adapters --env.taskset.recipe NAME`.

Each turn of an episode is a separate trace: the core renders every prompt anew, and the recipe's `history` selects the
earlier turns that it shows. The harness sends one request to the model and executes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import openai
import verifiers.v1 as vf
from pydantic import Field

from kernelrl_adapters.service import Service
from kernelrl_adapters.shared import (
    EstimatedRenderer,
    in_background,
    make_environment,
    read_recipe,
    recipe_of,
    reply_of,
)
from kernelrl_core.api.episodes import Environment, EpisodeId, EpisodeRunner, Sampled
from kernelrl_core.api.errors import InfrastructureError, UsageError
from kernelrl_core.api.policies import Message, Reply, SamplingSettings
from kernelrl_core.api.tasks import Task

__all__ = ["KernelEnv", "KernelEnvConfig", "KernelHarness", "KernelTaskset", "KernelTasksetConfig", "load_environment"]

PLUGIN = "kernelrl-adapters"
"""Name under which verifiers finds this package."""


class KernelTasksetConfig(vf.TasksetConfig):
    """The tasks and their evaluation, by recipe."""

    recipe: str = ""
    """Recipe of kernelrl: a path, or the name of a bundled one; with `service`, one that it serves."""
    service: str | None = None
    """Address of a running `kernelrl serve`, which has recipe, tasks and evaluator. None: all of them are here."""
    overrides: list[str] = Field(default_factory=list)
    """Overrides of recipe keys, as on the command line: `evaluation.trials=3`."""
    split: str | None = None
    """Split of the tasks. None: the recipe's `eval.split`; needed with `service`."""


class KernelTaskData(vf.TaskData):
    """One prompt of a task."""

    sampling: dict[str, Any] = Field(default_factory=dict)
    """Sampling fields of the request, from the recipe. Sampling options set in verifiers override them."""


class KernelTask(vf.Task[KernelTaskData]):
    """A task by its id. `KernelEnv` evaluates it, so it has no rewards of its own."""

    @property
    def key(self) -> str:
        return self.data.id or self.hash


class LazyEnvironment:
    """The environment of a taskset and its tasks, created on first use."""

    def __init__(self, config: KernelTasksetConfig) -> None:
        self._config = config
        self._environment: Environment | None = None
        self._service: Service | None = None

    @property
    def is_remote(self) -> bool:
        """Whether a service has the environment."""
        return self._config.service is not None

    @property
    def environment(self) -> Environment:
        """The environment of the recipe.

        Raises:
            UsageError: no recipe is given, or it is invalid.
        """
        if self._environment is None:
            if not self._config.recipe:
                raise UsageError(
                    "no recipe is given",
                    fix="add --env.taskset.recipe NAME; `kernelrl recipes list` prints the bundled ones",
                )
            self._environment = make_environment(recipe_of(read_recipe(self._config.recipe, self._config.overrides)))
        return self._environment

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """Id -> task, in the order of the task source."""
        settings = self.environment.recipe.eval
        found = self.environment.tasks.tasks(self._config.split or settings.split)
        return {task.id: task for task in list(found)[: settings.max_tasks]}

    async def aclose(self) -> None:
        """Close the environment; the next use creates a new one."""
        environment, self._environment = self._environment, None
        if environment is not None:
            await environment.aclose()
        service, self._service = self._service, None
        if service is not None:
            await service.aclose()

    async def service(self) -> Service:
        """The started client of the service.

        Raises:
            UsageError: `overrides` are given, which the service cannot apply.
            MissingPrerequisite, LookupFailed: it does not respond, or does not serve the recipe.
        """
        if self._service is None:
            if self._config.overrides:
                raise UsageError(
                    "a service applies no overrides", fix="serve a recipe file with them: kernelrl serve --recipe FILE"
                )
            self._service = Service([self._config.service or ""], self._config.recipe)
        await self._service.start()
        return self._service

    def first_prompts(self) -> list[tuple[str, list[Any]]]:
        """Task and first prompt of each task of the service."""
        split = self._config.split
        if split is None:
            raise UsageError("no split is given", fix="add --env.taskset.split NAME: the tasks of a service")

        async def go() -> list[tuple[str, list[Any]]]:
            # Another loop than that of the episodes, so another client.
            service = Service([self._config.service or ""], self._config.recipe)
            try:
                await service.start()
                return [(task, _wire(prompt)) async for task, prompt in service.first_prompts(split, "eval")]
            finally:
                await service.aclose()

        return in_background(go())


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """The tasks of a recipe."""

    def __init__(self, config: KernelTasksetConfig) -> None:
        super().__init__(config)
        # verifiers selects tasks by shallow copies of the taskset: the copies share this object.
        self.lazy = LazyEnvironment(config)

    def load(self) -> Iterable[KernelTask]:
        if self.lazy.is_remote:
            for id_, prompt in self.lazy.first_prompts():
                yield KernelTask(KernelTaskData(id=id_, name=id_, prompt=prompt), self.config.task)
            return
        for task in self.lazy.tasks.values():
            environment = self.lazy.environment
            examples = environment.retrieval.search(task).examples if environment.retrieval is not None else ()
            prompt = _messages(environment.composer.messages(task, examples=examples))
            data = KernelTaskData(id=task.id, name=task.name or task.id, prompt=prompt)
            yield KernelTask(data, self.config.task)


class KernelHarness(vf.Harness[vf.HarnessConfig]):
    """Requests one reply from the model and records it in the trace."""

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
    """The model that is evaluated or trained, and its context length."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The model that writes kernels."""
    context_tokens: int = 32768
    """Maximum tokens of prompt and reply together. Prompt tokens are estimated at 3 bytes per token."""


class KernelEnv(vf.Env[KernelEnvConfig]):
    """Runs the recipe's episodes: turns, prompts, evaluations, scores and feedback."""

    @property
    def lazy(self) -> LazyEnvironment:
        """The environment that evaluates the replies.

        Raises:
            UsageError: the taskset is not a `KernelTaskset`.
        """
        if not isinstance(self.taskset, KernelTaskset):
            raise UsageError(f"{PLUGIN}: the taskset must be a KernelTaskset, not {type(self.taskset).__name__}")
        return self.taskset.lazy

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        lazy = self.lazy
        if lazy.is_remote:
            await self._run_remote(task, agents, await lazy.service())
            return
        place = EpisodeId("eval", 0, task.data.idx or 0, 0)
        chosen = lazy.tasks[task.data.id or ""]
        examples = await lazy.environment.examples(chosen)
        renderer = EstimatedRenderer(self.config.context_tokens)
        runner = EpisodeRunner(lazy.environment, chosen, place, renderer, examples=examples)
        while (request := runner.next_prompt()) is not None:
            turn_task = task.with_data(prompt=_messages(request.prompt.messages), sampling=_body(request.settings))
            trace = await agents.agent.run(turn_task)
            if not trace.ok:
                return  # the trace holds the error
            turn = await runner.submit(request, Sampled(_reply(trace)))
            if turn.masked:
                raise InfrastructureError(turn.message)
            compiled = turn.evaluation is not None and turn.evaluation.compiled
            _record(
                trace,
                turn.score.total,
                turn.score.parts,
                turn.outcome.value,
                turn.verdict.value,
                compiled,
                turn.speedup,
            )

    async def _run_remote(self, task: vf.Task, agents: vf.Agents, service: Service) -> None:
        """An episode of the service."""
        opened = await service.open(task.data.id or "", "eval", self.config.context_tokens)
        try:
            prompt = opened["next"]
            while prompt is not None:
                turn_task = task.with_data(prompt=_wire(prompt), sampling=_wire_body(prompt))
                trace = await agents.agent.run(turn_task)
                if not trace.ok:
                    return  # the trace holds the error
                reply = _reply(trace)
                turn = await service.turn(opened["id"], prompt["turn"], reply.text, reply.stop_reason, reply.thinking)
                _record(
                    trace,
                    turn["reward"],
                    turn["parts"],
                    turn["outcome"],
                    turn["verdict"],
                    turn["compiled"],
                    turn["speedup"],
                )
                prompt = turn["next"]
        finally:
            await service.close(opened["id"])

    async def stop(self) -> None:
        await self.lazy.aclose()


def load_environment(
    recipe: str, *, overrides: Sequence[str] = (), split: str | None = None, context_tokens: int = 32768
) -> vf.Env[Any]:
    """The environment of a recipe, for verifiers.

    Args:
        recipe: a path, or the name of a bundled recipe.
        overrides: `key=value`, as on the command line.
        split: split of the tasks; None: the recipe's `eval.split`.
        context_tokens: maximum tokens of prompt and reply together.

    Raises:
        UsageError: the recipe is unknown or invalid.
        MissingPrerequisite: this machine lacks a prerequisite of the recipe.
    """
    taskset = KernelTasksetConfig(id=PLUGIN, recipe=recipe, overrides=list(overrides), split=split)
    return vf.load_environment(KernelEnvConfig(taskset=taskset, context_tokens=context_tokens))


def _messages(messages: Sequence[Message]) -> list[Any]:
    return [_message(message.role, message.content) for message in messages]


def _wire(prompt: Mapping[str, Any]) -> list[Any]:
    """The messages of a prompt of the service."""
    return [_message(message["role"], message["content"]) for message in prompt["messages"]]


def _message(role: str, content: str) -> Any:
    kinds = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
    return kinds[role](content=content)


def _wire_body(prompt: Mapping[str, Any]) -> dict[str, Any]:
    body = {name: prompt[name] for name in ("max_tokens", "temperature", "top_p")}
    return body | ({"stop": list(prompt["stop"])} if prompt["stop"] else {})


def _body(settings: SamplingSettings) -> dict[str, Any]:
    # No seed: verifiers does not number the episodes of a task, so all of them would get the same one.
    body: dict[str, Any] = {
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "top_p": settings.top_p,
    }
    return body | ({"stop": list(settings.stop)} if settings.stop else {})


def _reply(trace: vf.Trace) -> Reply:
    message = trace.assistant_messages[-1]
    text, thinking = message.content or "", message.reasoning_content or None
    return reply_of(text, thinking, cut=trace.is_truncated)


def _record(
    trace: vf.Trace,
    reward: float,
    parts: Mapping[str, float],
    outcome: str,
    verdict: str,
    compiled: bool,
    speedup: float | None,
) -> None:
    trace.record_reward("score", reward)
    trace.record_metrics({f"part/{name}": value for name, value in parts.items()})
    trace.record_metrics(
        {"correct": outcome == "correct", "compiled": compiled, f"outcome/{outcome}": 1.0, f"verdict/{verdict}": 1.0}
    )
    if speedup is not None:
        trace.record_metric("speedup", speedup)
