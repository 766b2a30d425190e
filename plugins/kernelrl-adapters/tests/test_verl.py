"""Reward function and rows for verl: alone, and through verl's configuration and reward manager."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from kernelrl_adapters.verl import compute_score, prompt_rows
from kernelrl_core.api.errors import InfrastructureError, LookupFailed, UsageError

ANSWER = "```python\nclass ModelNew:\n    def forward(self, x):\n        return {!r}\n```"
RIGHT, WRONG = ANSWER.format("right"), ANSWER.format("wrong")
SCORED = {
    RIGHT: {"score": 0.7, "correct": 1.0, "compiled": 1.0, "hacked": 0.0, "suspect": 0.0, "speedup": 1.5},
    WRONG: {"score": 0.0, "correct": 0.0, "compiled": 1.0, "hacked": 0.0, "suspect": 0.0, "speedup": 0.0},
    "no code": {"score": 0.0, "correct": 0.0, "compiled": 0.0, "hacked": 0.0, "suspect": 0.0, "speedup": 0.0},
}


def test_rows_are_in_the_format_of_verl(fake_recipe: str) -> None:
    rows = prompt_rows(fake_recipe, held_out=True)
    assert [row["reward_model"]["ground_truth"] for row in rows] == [f"fake/held_out/{n}" for n in range(4)]
    assert rows[3] | {"prompt": []} == {
        "data_source": "kernelrl",
        "prompt": [],
        "ability": "kernels",
        "reward_model": {"style": "rule", "ground_truth": "fake/held_out/3"},
        "extra_info": {"index": 3, "split": "test"},
    }
    assert "# held_out 3" in rows[3]["prompt"][-1]["content"]


def test_a_prompt_that_starts_the_reply_is_refused(fake_recipe: str) -> None:
    with pytest.raises(UsageError, match=r"prompt\.think_prefix=false"):
        prompt_rows(fake_recipe, ["prompt.think_prefix=true"])


@pytest.mark.parametrize("reply", SCORED)
def test_the_score_is_that_of_the_reply(fake_recipe: str, reply: str) -> None:
    assert compute_score("kernelrl", reply, "fake/train/0", {"index": 0}, recipe=fake_recipe) == SCORED[reply]


def test_an_infrastructure_error_and_an_unknown_task_are_raised(
    fake_recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernelrl_fake

    async def evaluate(self: Any, request: Any) -> Any:
        raise InfrastructureError("planted")

    monkeypatch.setattr(kernelrl_fake.Evaluator, "evaluate", evaluate)
    with pytest.raises(InfrastructureError, match="planted"):
        compute_score("kernelrl", RIGHT, "fake/train/0", recipe=fake_recipe, overrides=["evaluation.trials=4"])
    with pytest.raises(LookupFailed, match="did you mean 'fake/train/0'"):
        compute_score("kernelrl", RIGHT, "fake/trian/0", recipe=fake_recipe)


@pytest.fixture
def manager(fake_recipe: str, tokenizer: str) -> Callable[[str], dict[str, Any]]:
    """verl's reward manager for a reply to the first task, with our function loaded by its configuration."""
    pytest.importorskip("verl", reason="verl is not installed: pip install 'kernelrl-adapters[verl]'")
    import torch
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from transformers import AutoTokenizer
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
    from verl.trainer.ppo.reward import get_custom_reward_fn

    function = {
        "path": "pkg://kernelrl_adapters.verl",
        "name": "compute_score",
        "reward_kwargs": {"recipe": fake_recipe, "overrides": []},
    }
    config = OmegaConf.create({"reward": {"custom_reward_function": function}})
    loaded = AutoTokenizer.from_pretrained(tokenizer)
    row = prompt_rows(fake_recipe)[0]

    def score(reply: str) -> dict[str, Any]:
        async def go() -> Any:
            made = NaiveRewardManager(config, loaded, get_custom_reward_fn(config))
            tokens = torch.tensor([loaded.encode(reply, add_special_tokens=False)])
            batch = TensorDict({"responses": tokens, "attention_mask": torch.ones_like(tokens)}, batch_size=[1])
            columns = {name: [row[name]] for name in ("data_source", "reward_model", "extra_info")}
            return await made.run_single(DataProto.from_dict(dict(batch), non_tensors=_arrays(columns)))

        return asyncio.run(go())

    return score


def _arrays(columns: dict[str, list[Any]]) -> dict[str, Any]:
    import numpy

    found = {}
    for name, values in columns.items():
        found[name] = numpy.empty(len(values), dtype=object)
        found[name][:] = values
    return found


def test_the_reward_manager_of_verl_gets_scores_and_metrics(manager: Callable[[str], dict[str, Any]]) -> None:
    for reply, expected in SCORED.items():
        found = manager(reply)
        assert math.isclose(found["reward_score"], expected["score"])
        assert found["reward_extra_info"] == expected
