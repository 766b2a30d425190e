"""Trainers that use a running server: verl's reward manager and verifiers' evaluation, compared with a recipe here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kernelrl_command_server import CommandServer
from kernelrl_service_process import Service, Services

from kernelrl_adapters.verl import prompt_rows, service_rows, service_score
from kernelrl_core.api.errors import LookupFailed, MissingPrerequisite, UsageError

pytest.importorskip("kernelrl_service")
pytest.importorskip("kernelrl_plugin_http")

ANSWER = "```python\nclass ModelNew:\n    def forward(self, x):\n        return {!r}\n```"
SCORED = {
    ANSWER.format("right"): {
        "score": 0.7, "correct": 1.0, "compiled": 1.0, "hacked": 0.0, "suspect": 0.0, "speedup": 1.5
    },
    "no code": {"score": 0.0, "correct": 0.0, "compiled": 0.0, "hacked": 0.0, "suspect": 0.0, "speedup": 0.0},
}  # fmt: skip


@pytest.fixture
def service(fake_recipe: str, tmp_path: Path, command_server: CommandServer) -> Iterator[Service]:
    """A server with the recipe `fake`."""
    with Services(command_server, tmp_path, "--evaluator", "fake", "--recipe", fake_recipe) as services:
        yield services.start()


def test_rows_equal_those_of_the_recipe_here(fake_recipe: str, service: Service) -> None:
    assert service_rows([service.url], "fake", "held_out", held_out=True) == prompt_rows(fake_recipe, held_out=True)


def test_scores_are_those_of_the_replies(service: Service) -> None:
    async def go() -> list[dict[str, float]]:
        replies = [
            service_score("kernelrl", reply, "fake/train/0", recipe="fake", urls=[service.url]) for reply in SCORED
        ]
        return await asyncio.gather(*replies)

    assert asyncio.run(go()) == list(SCORED.values())


def test_the_reward_manager_of_verl_awaits_the_server(service: Service, tokenizer: str) -> None:
    pytest.importorskip("verl", reason="verl is not installed: pip install 'kernelrl-adapters[verl]'")
    import numpy
    import torch
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager
    from verl.trainer.ppo.reward import get_custom_reward_fn

    kwargs = {"recipe": "fake", "urls": [service.url]}
    function = {"path": "pkg://kernelrl_adapters.verl", "name": "service_score", "reward_kwargs": kwargs}
    config = OmegaConf.create({"reward": {"custom_reward_function": function}})
    loaded = AutoTokenizer.from_pretrained(tokenizer)
    row = service_rows([service.url], "fake", "train")[0]

    async def score(reply: str) -> Any:
        manager = NaiveRewardManager(config, loaded, get_custom_reward_fn(config))
        assert manager.is_async_reward_score
        tokens = torch.tensor([loaded.encode(reply, add_special_tokens=False)])
        columns = {
            name: numpy.array([row[name], None], dtype=object)[:1]
            for name in ("data_source", "reward_model", "extra_info")
        }
        data = DataProto.from_dict(
            {"responses": tokens, "attention_mask": torch.ones_like(tokens)}, non_tensors=columns
        )
        return await manager.run_single(data)

    for reply, expected in SCORED.items():
        found = asyncio.run(score(reply))
        assert found["reward_extra_info"] == expected


def test_names_that_the_server_lacks_and_a_server_that_is_away_are_errors(service: Service) -> None:
    def score(**changes: Any) -> None:
        options = {"recipe": "fake", "urls": [service.url], **changes}
        asyncio.run(service_score("kernelrl", "no code", options.pop("task", "fake/train/0"), **options))

    with pytest.raises(LookupFailed, match="did you mean 'fake'"):
        score(recipe="fkae")
    with pytest.raises(UsageError, match="fake/trian/0"):
        score(task="fake/trian/0")
    with pytest.raises(MissingPrerequisite, match="no server of kernelrl serve responds"):
        score(urls=["http://127.0.0.1:1"])
    with pytest.raises(LookupFailed, match="no tasks of split 'tset'"):
        service_rows([service.url], "fake", "tset")


def reply_of(messages: list[dict[str, str]]) -> str:
    """Correct for tasks 1 and 3, correct from the second turn on for task 2, no code for task 0."""
    task = int(str(messages).partition("held_out ")[2][:1] or "0")
    if task == 0:
        return "I would rather not."
    return ANSWER.format("right" if task in (1, 3) or len(messages) > 2 else "wrong")


def test_an_evaluation_by_verifiers_equals_one_with_the_recipe_here(
    fake_recipe: str, tmp_path: Path, command_server: CommandServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("verifiers")
    from kernelrl_openai_server import OpenAIServer
    from verifiers.v1.cli.eval.runner import run_eval
    from verifiers.v1.configs.cli.eval import EvalConfig

    monkeypatch.chdir(tmp_path)
    recipe = Path(fake_recipe)
    recipe.write_text(recipe.read_text() + "episode: {turns: 3, stop: correct}\n")

    def evaluated(model: OpenAIServer, **taskset: Any) -> Any:
        block = {"id": "kernelrl-adapters", **taskset}
        client = {"base_url": model.url, "api_key_var": "NO_KEY"}
        settings = {"env": {"taskset": block}, "model": "tiny", "client": client, "push": False, "rich": None}
        episodes = asyncio.run(run_eval(EvalConfig.model_validate({**settings, "output_dir": "vf"})))
        assert all(episode.ok for episode in episodes), [episode.errors for episode in episodes]
        return {
            (episode.task.data.id, number): (trace.reward, {**trace.metrics})
            for episode in episodes
            for number, trace in enumerate(episode.traces)
        }

    with (
        OpenAIServer(reply_of) as model,
        Services(command_server, tmp_path, "--evaluator", "fake", "--recipe", fake_recipe) as services,
    ):
        here = evaluated(model, recipe=fake_recipe)
        sent, model.requests = model.requests, []
        there = evaluated(model, recipe="fake", split="held_out", service=services.start().url)
    assert {key: reward for key, (reward, _) in there.items()} == {key: reward for key, (reward, _) in here.items()}
    assert there == here
    assert len(here) == 3 + 1 + 2 + 1
    assert sorted(str(one["messages"]) for one in sent) == sorted(str(one["messages"]) for one in model.requests)
