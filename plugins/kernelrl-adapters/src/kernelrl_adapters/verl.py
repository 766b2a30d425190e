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

A reward is the score of a recipe's turn. verl samples one reply per prompt, so episodes have one turn, and computes
advantages and losses; the recipe keys `episode`, `returns`, `advantage`, `policy` and most of `train` are ignored.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_adapters.shared import in_background, prompts_of, read_recipe, score_reply, turn_metrics
from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import split_prefill

__all__ = ["DATA_SOURCE", "compute_score", "prompt_rows"]

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
    rows = []
    found = in_background(prompts_of(_read(recipe, tuple(overrides)), held_out=held_out))
    for index, (task, messages) in enumerate(found):
        if split_prefill(messages)[1]:
            raise UsageError(f"{recipe}: verl cannot continue a started reply", fix="add prompt.think_prefix=false")
        rows.append(
            {
                "data_source": DATA_SOURCE,
                "prompt": [{"role": message.role, "content": message.content} for message in messages],
                "ability": "kernels",
                "reward_model": {"style": "rule", "ground_truth": task.id},
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
