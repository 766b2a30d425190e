"""A recipe's tasks and scores for TRL's `GRPOTrainer`, and for its other trainers with the same reward functions.

    from datasets import Dataset
    from kernelrl_adapters.trl import kernel_reward, prompt_rows
    from trl import GRPOConfig, GRPOTrainer

    trainer = GRPOTrainer(
        model="Qwen/Qwen3-4B",
        reward_funcs=kernel_reward("stage1"),
        train_dataset=Dataset.from_list(prompt_rows("stage1")),
        args=GRPOConfig(max_completion_length=4096),
    )

A reward is the score of a recipe's turn. TRL samples one reply per prompt, so episodes have one turn, and computes
advantages and losses; the recipe keys `episode`, `returns`, `advantage`, `policy` and most of `train` are ignored.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from kernelrl_adapters.shared import in_background, prompts_of, read_recipe, score_reply, turn_metrics
from kernelrl_core.api.episodes import Turn
from kernelrl_core.api.errors import InfrastructureError

__all__ = ["KernelReward", "kernel_reward", "prompt_rows"]

_log = logging.getLogger(__name__)


class KernelReward(Protocol):
    """Type of the reward function: see `kernel_reward`."""

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        task: Sequence[str],
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]: ...


def prompt_rows(recipe: str, overrides: Sequence[str] = (), *, held_out: bool = False) -> list[dict[str, Any]]:
    """Rows of a data set: `prompt`, the messages of the first prompt, and `task`, the id of the task.

    Args:
        recipe: a path, or the name of a bundled recipe.
        overrides: `key=value`, as on the command line.
        held_out: tasks of `eval` instead of the training tasks.

    Raises:
        UsageError: the recipe is unknown or invalid.
        MissingPrerequisite: this machine lacks a prerequisite of the recipe.
    """
    found = in_background(prompts_of(read_recipe(recipe, overrides), held_out=held_out))
    return [
        {"prompt": [{"role": message.role, "content": message.content} for message in messages], "task": task.id}
        for task, messages in found
    ]


def kernel_reward(recipe: str, overrides: Sequence[str] = ()) -> KernelReward:
    """A function for `reward_funcs`, for rows of `prompt_rows` of the same recipe.

    It evaluates all completions concurrently and returns their scores; after an infrastructure error None, which TRL
    excludes from the group. It logs the means of `correct`, `compiled`, `hacked`, `suspect`, `speedup` and of each
    reward component as `kernelrl/NAME`, and the outcomes as a column.

    Raises:
        UsageError: the recipe is unknown or invalid. Calls also raise if a task is not in the recipe.
        MissingPrerequisite: raised by calls, if this machine lacks a prerequisite of the recipe.
    """
    text = read_recipe(recipe, overrides)

    def kernelrl(
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        task: Sequence[str],
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        turns = in_background(_score_all(text, task, completions))
        if log_metric is not None:
            for name, value in _means(turns).items():
                log_metric(f"kernelrl/{name}", value)
        if log_extra is not None:
            log_extra("outcome", ["infra_error" if turn is None else turn.outcome.value for turn in turns])
        return [None if turn is None else turn.score.total for turn in turns]

    return kernelrl


async def _score_all(text: str, tasks: Sequence[str], completions: Sequence[Any]) -> list[Turn | None]:
    async def score(index: int, task: str, completion: Any) -> Turn | None:
        reply, thinking = _reply(completion)
        try:
            return await score_reply(text, task, reply, thinking=thinking, index=index)
        except InfrastructureError as error:
            _log.warning("%s: no reward for this completion: %s", task, error)
            return None

    pairs = zip(tasks, completions, strict=True)
    return await asyncio.gather(*(score(index, *pair) for index, pair in enumerate(pairs)))


def _reply(completion: str | Sequence[Mapping[str, Any]]) -> tuple[str, str | None]:
    """Text and separated thinking of a completion: a text, or the messages of a conversation."""
    if isinstance(completion, str):
        return completion, None
    message = completion[-1] if completion else {}
    text, thinking = str(message.get("content") or ""), message.get("reasoning_content") or message.get("thinking")
    return (f"<think>\n{thinking}\n</think>\n\n{text}", str(thinking)) if thinking else (text, None)


def _means(turns: Sequence[Turn | None]) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for turn in turns:
        for name, value in (turn_metrics(turn) if turn is not None else {}).items():
            values[name].append(value)
    return {name: statistics.fmean(found) for name, found in values.items()}
