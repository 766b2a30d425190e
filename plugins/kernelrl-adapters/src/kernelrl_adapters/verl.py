"""A recipe's tasks and scores for verl: `compute_score` is a custom reward function.

    from kernelrl_adapters.verl import prompt_rows
    import pandas as pd

    pd.DataFrame(prompt_rows("stage1")).to_parquet("train.parquet")
    pd.DataFrame(prompt_rows("stage1", held_out=True)).to_parquet("test.parquet")

In the configuration of verl:

    reward:
      custom_reward_function:
        path: pkg://kernelrl_adapters.verl
        name: compute_score
        reward_kwargs: {recipe: stage1, overrides: []}

`service_rows` and `service_score` do the same by a running `kernelrl serve --recipe stage1`, so that the trainer needs
no evaluator:

        name: service_score
        reward_kwargs: {recipe: stage1, urls: ["http://gpu-box:8790"]}

A reward is the score of a recipe's turn. verl samples one reply per prompt, so episodes have one turn, and computes
advantages and losses; the recipe keys `episode`, `returns`, `advantage`, `policy` and most of `train` are ignored.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_adapters.service import shared_service
from kernelrl_adapters.shared import in_background, prompts_of, read_recipe, score_reply, turn_metrics
from kernelrl_core.api.errors import UsageError

__all__ = ["DATA_SOURCE", "compute_score", "prompt_rows", "service_rows", "service_score"]

DATA_SOURCE = "kernelrl"
"""Value of the column `data_source`."""
_METRICS = ("correct", "compiled", "hacked", "suspect", "speedup")

_read = functools.lru_cache(read_recipe)


def prompt_rows(recipe: str, overrides: Sequence[str] = (), *, held_out: bool = False) -> list[dict[str, Any]]:
    """Rows of a data set in verl's format; `reward_model.ground_truth` is the id of the task.

    Args:
        recipe: a path, or the name of a bundled recipe.
        overrides: `key=value`, as on the command line.
        held_out: tasks of `eval` instead of the training tasks.

    Raises:
        UsageError: the recipe is unknown or invalid, or its prompts start the reply, which verl cannot continue.
        MissingPrerequisite: this machine lacks a prerequisite of the recipe.
    """
    found = in_background(prompts_of(_read(recipe, tuple(overrides)), held_out=held_out))
    prompts = [(task.id, [(message.role, message.content) for message in messages]) for task, messages in found]
    return _rows(recipe, prompts, held_out=held_out)


def service_rows(urls: Sequence[str], recipe: str, split: str, *, held_out: bool = False) -> list[dict[str, Any]]:
    """Rows as those of `prompt_rows`, from a running server.

    Args:
        urls: addresses of servers of `kernelrl serve`.
        recipe: name of a recipe that they serve.
        split: split of the tasks.
        held_out: whether the rows are for evaluation.

    Raises:
        UsageError: the recipe is not served or has no such split, or its prompts start the reply.
        MissingPrerequisite: no server responds, or it refuses the token.
    """

    async def prompts() -> list[tuple[str, list[tuple[str, str]]]]:
        service = await shared_service(urls, recipe)
        found = service.first_prompts(split, "eval" if held_out else "train")
        return [(task, [(one["role"], one["content"]) for one in prompt["messages"]]) async for task, prompt in found]

    return _rows(recipe, in_background(prompts()), held_out=held_out)


def _rows(
    recipe: str, prompts: Sequence[tuple[str, Sequence[tuple[str, str]]]], *, held_out: bool
) -> list[dict[str, Any]]:
    """Rows of tasks with the role and content of each message."""
    rows = []
    for index, (task, messages) in enumerate(prompts):
        if messages[-1][0] == "assistant":
            raise UsageError(f"{recipe}: verl cannot continue a started reply", fix="add prompt.think_prefix=false")
        rows.append(
            {
                "data_source": DATA_SOURCE,
                "prompt": [{"role": role, "content": content} for role, content in messages],
                "ability": "kernels",
                "reward_model": {"style": "rule", "ground_truth": task},
                "extra_info": {"index": index, "split": "test" if held_out else "train"},
            }
        )
    return rows


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    recipe: str,
    overrides: Sequence[str] = (),
    **kwargs: Any,
) -> dict[str, float]:
    """Score of a reply, for verl's reward managers. Thread-safe: concurrent calls are evaluated concurrently.

    Args:
        data_source: not used, like `extra_info`.
        solution_str: the reply.
        ground_truth: id of the task.
        recipe: a path, or the name of a bundled recipe.
        overrides: `key=value`, as on the command line.

    Returns:
        `score`, and as metrics `correct`, `compiled`, `hacked` and `suspect` (0 or 1) and `speedup` (0: not measured).

    Raises:
        InfrastructureError: the evaluation failed. verl can mask no reply, so it stops instead of learning from it.
        UsageError, MissingPrerequisite: as for `prompt_rows`.
    """
    turn = in_background(score_reply(_read(recipe, tuple(overrides)), ground_truth, solution_str))
    metrics = turn_metrics(turn)
    return {"score": turn.score.total, **{name: metrics.get(name, 0.0) for name in _METRICS}}


async def service_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    recipe: str,
    urls: Sequence[str],
    **kwargs: Any,
) -> dict[str, float]:
    """As `compute_score`, by running servers. verl awaits it, so that a worker has many requests in flight.

    Args:
        recipe: name of a recipe that the servers have.
        urls: addresses of servers of `kernelrl serve`.

    Raises:
        InfrastructureError: the evaluation failed on the server.
        UsageError: recipe or task is not served.
        MissingPrerequisite: no server responds, or it refuses the token.
    """
    service = await shared_service(tuple(urls), recipe)
    turn = await service.score(ground_truth, solution_str)
    return {
        "score": turn["reward"],
        "correct": float(turn["correct"]),
        "compiled": float(turn["compiled"]),
        "hacked": float(turn["outcome"] == "hacked"),
        "suspect": float(turn["verdict"] == "suspect"),
        "speedup": turn["speedup"] or 0.0,
    }
