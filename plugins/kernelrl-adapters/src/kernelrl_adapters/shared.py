"""Environments by recipe: created on first use, closed with the event loop.

Only the recipe, as JSON, is sent between processes. An environment owns processes and cannot be sent. Frameworks that
call ordinary functions get the results of an event loop in a thread of its own (`in_background`).
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.episodes import (
    Environment,
    Recipe,
    SampleId,
    Turn,
    eval_tasks,
    load_recipe,
    recipe_from_mapping,
    registry,
    training_tasks,
)
from kernelrl_core.api.errors import InfrastructureError, LookupFailed, suggestion
from kernelrl_core.api.policies import Message, Prompt, Reply, estimated_prompt
from kernelrl_core.api.tasks import Task

__all__ = [
    "EstimatedRenderer",
    "close_background",
    "in_background",
    "make_environment",
    "prompts_of",
    "read_recipe",
    "recipe_of",
    "reply_of",
    "score_reply",
    "score_reply_to",
    "shared",
    "shared_environment",
    "turn_metrics",
]

_T = TypeVar("_T")
_CLOSE_S = 30.0


class _Closable(Protocol):
    async def aclose(self) -> None: ...


_open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, AsyncGenerator[_Closable]]] = WeakKeyDictionary()


def read_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> str:
    """The resolved recipe as JSON, independent of the working directory; see `load_recipe` for names and errors."""
    return json.dumps(load_recipe(name_or_path, overrides, registry=registry()).resolved, sort_keys=True)


@functools.lru_cache
def recipe_of(text: str) -> Recipe:
    """The recipe of a text from `read_recipe`."""
    return recipe_from_mapping(json.loads(text), registry=registry(), name="recipe").recipe


def make_environment(recipe: Recipe) -> Environment:
    """A new environment with a random secret, so that its hidden inputs are unpredictable. The caller closes it."""
    return Environment.from_recipe(recipe, registry=registry(), secret=os.urandom(32), cache_dir=cache_directory())


async def shared_environment(text: str) -> Environment:
    """The environment of the running event loop for a recipe. It is closed when `asyncio.run` ends."""
    return cast(Environment, await shared(text, lambda: make_environment(recipe_of(text))))


async def shared(key: str, make: Callable[[], _Closable]) -> _Closable:
    """The object of the running event loop for a key, made at the first call. It is closed when `asyncio.run` ends."""
    known = _open.setdefault(asyncio.get_running_loop(), {})
    if key not in known:
        # `asyncio.run` closes every started asynchronous generator at its end, and so the object.
        known[key] = _hold(make())
        return await anext(known[key])
    return await known[key].asend(None)


async def _hold(made: _Closable) -> AsyncGenerator[_Closable]:
    try:
        while True:
            yield made
    finally:
        await made.aclose()


# --- for frameworks that call ordinary functions ----------------------------------------------------------------------


def in_background(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine in the background loop of this process, whose shared objects stay open until the end.
    May be called from any thread, also where another loop is running."""
    loop, _ = _background(os.getpid())
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:  # Ctrl-C in the waiting thread
        future.cancel()
        raise


def close_background() -> None:
    """Close the shared objects of the background loop, such as evaluators with their processes. The next call of
    `in_background` starts another loop. Called when the process ends."""
    if _background.cache_info().currsize:
        _, stop = _background(os.getpid())
        _background.cache_clear()
        stop()


@functools.cache
def _background(pid: int) -> tuple[asyncio.AbstractEventLoop, Callable[[], None]]:
    """The loop of a process, and a function that ends it; a forked process has none of the threads of its parent."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        end = asyncio.Event()
        started.set_result((asyncio.get_running_loop(), end))
        await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="kernelrl-adapters", daemon=True)
    thread.start()
    loop, end = started.result()

    def stop() -> None:
        loop.call_soon_threadsafe(end.set)
        thread.join(_CLOSE_S)

    return loop, stop


atexit.register(close_background)


# --- one reply to one prompt ------------------------------------------------------------------------------------------


async def prompts_of(text: str, *, held_out: bool) -> list[tuple[Task, tuple[Message, ...]]]:
    """The tasks of a recipe with the first prompt of each, in the order of the task source.

    Args:
        text: from `read_recipe`.
        held_out: tasks of `eval` instead of the training tasks.
    """
    environment = await shared_environment(text)
    recipe = environment.recipe
    if held_out:
        tasks = list(eval_tasks(environment.tasks, recipe.eval))
    else:
        tasks = list(training_tasks(environment.tasks, recipe.train, recipe.eval.split)[0])
    found = []
    for task in tasks:
        examples = (await environment.examples(task)).examples
        found.append((task, environment.composer.messages(task, examples=examples)))
    return found


async def score_reply(text: str, task_id: str, reply: str, *, thinking: str | None = None, index: int = 0) -> Turn:
    """The evaluated and scored turn of a reply to the first prompt of a task.

    Args:
        text: from `read_recipe`.
        reply: text after the prefill of the prompt.
        thinking: thinking that the framework separated from the reply.
        index: number of the reply among concurrent ones, for messages.

    Raises:
        LookupFailed: the recipe has no such task.
        InfrastructureError: the evaluation failed, which says nothing about the reply.
    """
    tasks = _tasks(text)
    if task_id not in tasks:
        raise LookupFailed(f"the recipe has no task {task_id!r}; {suggestion(task_id, tasks)}")
    return await score_reply_to(text, tasks[task_id], reply, thinking=thinking, index=index)


async def score_reply_to(text: str, task: Task, reply: str, *, thinking: str | None = None, index: int = 0) -> Turn:
    """`score_reply` for a task that need not be one of the recipe's.

    Raises:
        InfrastructureError: the evaluation failed, which says nothing about the reply.
    """
    environment = await shared_environment(text)
    prompt = estimated_prompt(environment.composer.messages(task))
    sampled = Reply(reply, (), (), "stop", thinking)
    turn = await environment.evaluate_reply(SampleId(0, index, 0, 0), task, prompt, sampled, seconds={})
    if turn.masked:
        raise InfrastructureError(turn.message)
    return turn


@functools.lru_cache
def _tasks(text: str) -> Mapping[str, Task]:
    source = registry().make("tasks", recipe_of(text).tasks)
    return {task.id: task for split in source.splits() for task in source.tasks(split)}


@dataclass(frozen=True)
class EstimatedRenderer:
    """Estimates the number of prompt tokens for a server that applies its own chat template."""

    context_tokens: int

    def render(self, messages: Sequence[Message]) -> Prompt:
        return estimated_prompt(messages)


def reply_of(text: str, thinking: str | None, *, cut: bool) -> Reply:
    """The reply of a server, whose tokens are not known.

    Args:
        thinking: thinking that the server separated from the text.
        cut: whether a limit of tokens ended the reply.
    """
    whole = f"<think>\n{thinking}\n</think>\n\n{text}" if thinking else text
    return Reply(whole, (), (), "length" if cut else "stop", thinking)


def turn_metrics(turn: Turn) -> dict[str, float]:
    """`correct`, `compiled`, `hacked` and `suspect` as 0 or 1; `reward/NAME` of each component; `speedup`, if it was
    measured."""
    found = {
        "correct": float(turn.correct),
        "compiled": float(turn.evaluation is not None and turn.evaluation.compiled),
        "hacked": float(turn.outcome == "hacked"),
        "suspect": float(turn.verdict == "suspect"),
        **{f"reward/{name}": value for name, value in turn.score.parts.items()},
    }
    return found if turn.speedup is None else {**found, "speedup": turn.speedup}
