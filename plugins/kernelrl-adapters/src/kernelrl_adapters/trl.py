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
from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite

__all__ = ["KernelReward", "ServiceEnvironment", "kernel_reward", "prompt_rows", "service_environment"]

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


# --- whole episodes by a server ---------------------------------------------------------------------------------------

_MESSAGE_S = 900.0
"""Longest evaluation, with its wait in the queue of the server."""


def service_environment(url: str, recipe: str | None = None) -> Callable[[], ServiceEnvironment]:
    """The `environment_factory` of TRL's trainers for the episodes of a running `kernelrl serve`.

    The rows of the data set need no columns; `task`, `seed` and `purpose` of a row select its task. TRL appends the
    first prompt to the row's last user message, and the environment owns the reward.

    Args:
        url: address of the server, such as `http://127.0.0.1:8790`. With a token: `http://x:TOKEN@HOST`.
        recipe: name of a recipe that it serves; None: the only one.

    Raises:
        MissingPrerequisite: OpenEnv's client is not installed.
    """
    try:
        from openenv.core.generic_client import GenericEnvClient
    except ImportError as error:
        raise MissingPrerequisite("TRL's environments need OpenEnv's client", fix="pip install openenv-core") from error

    def make() -> ServiceEnvironment:
        client = GenericEnvClient(base_url=f"{url.rstrip('/')}/openenv", message_timeout_s=_MESSAGE_S)
        return ServiceEnvironment(client.sync(), recipe)

    return make


class ServiceEnvironment:
    """An episode of a server. Its public methods are tools of the model, except `reset` and `get_reward`.

    Args:
        client: OpenEnv's synchronous client.
        recipe: name of the recipe; None: the only one.
    """

    def __init__(self, client: Any, recipe: str | None) -> None:
        self._client, self._recipe = client, recipe
        self._reward: float | None = 0.0
        self._is_over = False

    def reset(self, **columns: Any) -> str:
        """Open an episode; returns its first prompt."""
        chosen = {name: columns[name] for name in ("task", "seed", "purpose") if columns.get(name) is not None}
        if self._recipe is not None:
            chosen["recipe"] = self._recipe
        result = self._client.reset(**chosen)
        self._reward, self._is_over = 0.0, result.done
        return "\n\n".join(message["content"] for message in result.observation["messages"])

    async def submit_kernel(self, reply: str) -> str:
        """
        Submit a kernel, which is built, compared with the reference and timed.

        Args:
            reply: The complete Python source, in a code block.

        Returns:
            The feedback on it: the reason why it is not correct, or its speed.
        """
        if self._is_over:
            raise ValueError("The episode has ended.")
        try:
            result = await asyncio.to_thread(self._client.step, {"reply": reply})
        except Exception as error:  # the client raises its own and those of its libraries
            # TRL shows exceptions of tools to the model, and this one says nothing about its kernel.
            _log.warning("an evaluation was lost: %s", error)
            self._reward, self._is_over = None, True
            return "The episode has ended."
        self._reward, self._is_over = result.reward, result.done
        return str(result.observation["feedback"] or result.observation["outcome"])

    def get_reward(self) -> float | None:
        """Score of the last submitted kernel, 0 without one; None, which TRL excludes from the group, where the
        evaluation was lost."""
        return self._reward
