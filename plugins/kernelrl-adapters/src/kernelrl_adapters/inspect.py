"""The tasks of a recipe in Inspect AI: `inspect eval kernelrl_adapters/kernels -T recipe=NAME --model MODEL`.

`kernels` is the task, `episode` its solver with the turns of the recipe, and `kernel_score` its scorer, which also
scores the output of any other solver or agent. The recipe's evaluator executes the kernels, not a sandbox of Inspect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentReasoning,
    GenerateConfig,
    Model,
    ModelOutput,
    get_model,
)
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver

from kernelrl_adapters.shared import (
    EstimatedRenderer,
    in_background,
    prompts_of,
    read_recipe,
    reply_of,
    score_reply,
    shared_environment,
    turn_metrics,
)
from kernelrl_core.api.episodes import EpisodeId, EpisodeRunner, Sampled, SampleRequest, Turn
from kernelrl_core.api.errors import InfrastructureError, UsageError
from kernelrl_core.api.policies import Message, Reply
from kernelrl_core.api.tasks import Task as KernelTask

__all__ = ["episode", "kernel_score", "kernels"]

_TURNS = "kernelrl_turns"
"""Key of the finished turns in the store of a sample."""
_NUMBERS = ("correct", "compiled", "hacked", "suspect")
_CUT = ("max_tokens", "model_length")
"""Stop reasons of a reply that a limit ended."""


@task
def kernels(recipe: str, overrides: str | Sequence[str] = (), context_tokens: int = 32768) -> Task:
    """The tasks of `eval` of a recipe.

    Args:
        recipe: a path, or the name of a bundled recipe.
        overrides: `key=value`, as on the command line; `eval.split=NAME` takes other tasks.
        context_tokens: maximum tokens of prompt and reply together. Prompt tokens are estimated at 3 bytes per token.

    Raises:
        UsageError: the recipe is unknown or invalid.
        MissingPrerequisite: this machine lacks a prerequisite of the recipe.
    """
    text = read_recipe(recipe, [overrides] if isinstance(overrides, str) else list(overrides))
    found = in_background(prompts_of(text, held_out=True))  # `inspect eval` calls this in a running loop
    samples = [
        Sample(id=one.id, input=_messages(prompt), metadata={"level": one.level, "order": order})
        for order, (one, prompt) in enumerate(found)
    ]
    return Task(
        dataset=MemoryDataset(samples, name=recipe),
        solver=episode(text, context_tokens),
        scorer=kernel_score(text),
    )


@solver
def episode(recipe: str, context_tokens: int = 32768) -> Solver:
    """The episode of the recipe: turns, prompts and feedback. The messages of a sample are those of its last turn.

    Args:
        recipe: from `kernelrl_adapters.shared.read_recipe`.
        context_tokens: see `kernels`.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        chosen = await _task_of(recipe, str(state.sample_id))
        environment = await shared_environment(recipe)
        place = EpisodeId("eval", 0, state.metadata.get("order", 0), state.epoch - 1)
        examples = await environment.examples(chosen)
        runner = EpisodeRunner(environment, chosen, place, EstimatedRenderer(context_tokens), examples=examples)
        while (request := runner.next_prompt()) is not None:
            state.messages = _messages(request.prompt.messages)
            state.output = await _generated(get_model(), request)
            state.messages.append(state.output.message)
            turn = await runner.submit(request, Sampled(_reply(state.output)))
            if turn.masked:
                raise InfrastructureError(turn.message)
            state.store.set(_TURNS, [*state.store.get(_TURNS, []), _described(turn)])
        return state

    return solve


@scorer(metrics={"*": [mean(), stderr()]})
def kernel_score(recipe: str) -> Scorer:
    """The best turn of a sample's episode, by the rewards of the recipe: `score`, `correct`, `compiled`, `hacked`,
    `suspect`. The metadata have all turns, with `speedup` and the parts of the score.

    Without turns of `episode`, the output of the sample is scored as a reply to the first prompt.

    Args:
        recipe: from `kernelrl_adapters.shared.read_recipe`.
    """

    async def scored(state: TaskState, target: Target) -> Score:
        turns: list[dict[str, Any]] = state.store.get(_TURNS, [])
        if not turns:
            reply = _reply(state.output)
            turn = await score_reply(recipe, str(state.sample_id), reply.text, thinking=reply.thinking)
            turns = [_described(turn)]
        best = max(turns, key=lambda one: one["numbers"]["score"])
        return Score(
            value=best["numbers"],
            answer=best["kernel"],
            explanation=": ".join(filter(None, (best["outcome"], best["message"]))),
            metadata={"turns": turns},
        )

    return scored


async def _task_of(recipe: str, id_: str) -> KernelTask:
    return next(one for one, _ in await prompts_of(recipe, held_out=True) if one.id == id_)


async def _generated(model: Model, request: SampleRequest) -> ModelOutput:
    if request.prompt.prefill:
        raise UsageError(
            "prompt.think_prefix needs a model that continues an assistant message",
            fix="override prompt.think_prefix=false",
        )
    settings = request.settings
    # No seed: not every provider has one, and the epochs of a task must differ.
    config = GenerateConfig(
        max_tokens=settings.max_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        stop_seqs=list(settings.stop) or None,
    )
    return await model.generate(_messages(request.prompt.messages), config=config)


def _messages(messages: Sequence[Message]) -> list[ChatMessage]:
    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    return [kinds[message.role](content=message.content) for message in messages]


def _reply(output: ModelOutput) -> Reply:
    content = output.message.content if output.choices else ""
    parts = [] if isinstance(content, str) else content
    thinking = "\n\n".join(part.reasoning for part in parts if isinstance(part, ContentReasoning))
    return reply_of(output.completion, thinking or None, cut=output.stop_reason in _CUT)


def _described(turn: Turn) -> dict[str, Any]:
    """A turn as JSON. Its numbers have the same names in every turn, as Inspect's metrics need them."""
    metrics = turn_metrics(turn)
    return {
        "numbers": {"score": turn.score.total, **{name: metrics[name] for name in _NUMBERS}},
        "metrics": metrics,
        "outcome": turn.outcome.value,
        "verdict": turn.verdict.value,
        "message": turn.message,
        "kernel": turn.candidate.source if turn.candidate is not None else None,
    }
