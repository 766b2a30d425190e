"""The environment as a plugin of verifiers: verifiers' evaluation over real HTTP, compared with `kernelrl eval`."""

from __future__ import annotations

import asyncio
import json
import logging
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers")
pytest.importorskip("openai")

from kernelrl_openai_server import OpenAIServer, WriteReply
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

from kernelrl_adapters import load_environment
from kernelrl_adapters.shared import read_recipe
from kernelrl_adapters.verifiers_package import write_verifiers_package
from kernelrl_core.api.components import Use, registry
from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.tasks import Outcome
from kernelrl_testing.core import main

FAKE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
rewards:   {correct: {use: fake, weight: 0.7}}
"""
REAL = """
extends: quickstart
eval: {split: train, max_tasks: 4}
episode: {turns: 2}
evaluation: {trials: 2, probes: []}
verify: {eval: 0.0}
"""

Rewards = dict[tuple[str, int], float]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake.yaml").write_text(FAKE)
    (tmp_path / "real.yaml").write_text(REAL)
    level = logging.getLogger().level
    yield tmp_path
    logging.getLogger().setLevel(level)


def evaluated_by_verifiers(server: OpenAIServer, recipe: str, *overrides: str, **config: Any) -> list[Any]:
    """Episodes of an evaluation by verifiers."""
    taskset = {"id": "kernelrl-adapters", "recipe": recipe, "overrides": list(overrides)}
    client = {"base_url": server.url, "api_key_var": "NO_KEY"}
    settings = {"env": {"taskset": taskset}, "model": "tiny", "client": client, "push": False, "rich": None}
    return asyncio.run(run_eval(EvalConfig.model_validate({**settings, "output_dir": "vf", **config})))


def evaluated_by_kernelrl(server: OpenAIServer, recipe: str, *overrides: str) -> dict[str, Any]:
    """Report of `kernelrl eval`."""
    policy = ["policy.use=openai", f"policy.base_url={server.url}", "policy.model=tiny", "policy.api_key_env=null"]
    report = Path("report.json")
    options = ["policy.context_tokens=32768", *overrides, "--output", str(report), "--force"]
    with pytest.raises(SystemExit) as ended:
        main(["eval", recipe, *policy, *options])
    assert ended.value.code == 0
    document: dict[str, Any] = json.loads(report.read_text())
    return document


def rewards_of_episodes(episodes: list[Any]) -> Rewards:
    return {(e.task.data.id, turn): trace.reward for e in episodes for turn, trace in enumerate(e.traces)}


def rewards_of_report(report: dict[str, Any]) -> Rewards:
    return {(row["task_id"], row["turn"]): row["score"]["total"] for row in report["rows"]}


def fake_reply(messages: list[dict[str, str]]) -> str:
    """Correct for tasks 1 and 3, correct from the second turn on for task 2, no code for task 0."""
    task = int(str(messages).partition("held_out ")[2][:1] or "0")  # the policy's probe names no task
    if task == 0:
        return "I would rather not."
    right = task in (1, 3) or len(messages) > 2
    return (
        f"```python\nclass ModelNew:\n    def forward(self, x):\n        return {'right' if right else 'wrong'!r}\n```"
    )


def test_rewards_prompts_and_turns_equal_those_of_kernelrl_eval() -> None:
    with OpenAIServer(fake_reply) as server:
        mine = evaluated_by_kernelrl(server, "fake.yaml", "episode.turns=3", "episode.stop=correct")
        sent, server.requests = server.requests[1:], []  # the first one is the policy's probe
        theirs = evaluated_by_verifiers(server, "fake.yaml", "episode.turns=3", "episode.stop=correct")
    task = "fake/held_out/{}".format
    wanted = {(task(0), turn): 0.0 for turn in range(3)}
    wanted |= {(task(1), 0): 0.7, (task(2), 0): 0.0, (task(2), 1): 0.7, (task(3), 0): 0.7}
    assert rewards_of_episodes(theirs) == rewards_of_report(mine) == wanted
    assert sorted(str(body["messages"]) for body in sent) == sorted(str(body["messages"]) for body in server.requests)
    assert all(episode.ok for episode in theirs)


def test_retrieved_examples_equal_those_of_kernelrl_eval(directory: Path) -> None:
    near = {"id": "near", "reference": "class Model: ...", "kernel": "class ModelNew:  # near"}
    (directory / "index.json").write_text(json.dumps([near]))
    retriever = f"retriever={{use: fake, index: {directory / 'index.json'}}}"
    with OpenAIServer(fake_reply) as server:
        evaluated_by_kernelrl(server, "fake.yaml", retriever)
        sent, server.requests = server.requests[1:], []  # the first one is the policy's probe
        evaluated_by_verifiers(server, "fake.yaml", retriever)
    assert all("# near" in str(body["messages"]) for body in server.requests)
    assert sorted(str(body["messages"]) for body in sent) == sorted(str(body["messages"]) for body in server.requests)


def test_real_kernels_get_the_scores_of_kernelrl_eval() -> None:
    with OpenAIServer(bundled_reply()) as server:
        mine = evaluated_by_kernelrl(server, "real.yaml")
        theirs = evaluated_by_verifiers(server, "real.yaml")
    assert [error.message for episode in theirs for error in episode.errors] == []
    assert rewards_of_episodes(theirs) == rewards_of_report(mine)
    outcomes = {row["outcome"] for row in mine["rows"]}
    assert {"correct", "incorrect", "format_error"} <= outcomes
    reported = {name for e in theirs for trace in e.traces for name in trace.metrics if name.startswith("outcome/")}
    assert reported == {f"outcome/{outcome}" for outcome in outcomes}


def bundled_reply() -> WriteReply:
    """Bundled demonstrations as replies: incorrect ones first, correct ones in turn 2; prose for one task."""
    source = registry().make("tasks", Use("starter", registry().find("tasks", "starter").load_config()()))
    tasks = list(source.tasks("train"))[:4]

    def of(task: Any, outcome: Outcome) -> str:
        found = [a for a in source.demonstrations(task) if a.backend == "triton" and a.outcome is outcome]
        return f"```python\n{found[0].source}```"

    def reply(messages: list[dict[str, str]]) -> str:
        words = messages[-1 if len(messages) < 3 else -3]["content"]
        task = next((task for task in tasks if task.reference.strip() in words), None)
        if task is None or task is tasks[0]:
            return "I would rather not."
        return of(task, Outcome.CORRECT if len(messages) > 2 else Outcome.INCORRECT)

    return reply


def test_requests_of_one_task_have_no_common_seed() -> None:
    with OpenAIServer(fake_reply) as server:
        episodes = evaluated_by_verifiers(server, "fake.yaml", num_rollouts=2)
    assert len(episodes) == 8
    assert not any("seed" in body for body in server.requests)


def test_sampling_settings_come_from_the_recipe_and_verifiers_may_override_them() -> None:
    with OpenAIServer(fake_reply) as server:
        overrides = ["sampling.max_tokens=77", "sampling.temperature=0.5", "sampling.stop=[END]"]
        evaluated_by_verifiers(server, "fake.yaml", *overrides, sampling={"temperature": 0.25})
    body = server.requests[-1]
    assert (body["max_tokens"], body["temperature"], body["stop"]) == (77, 0.25, ["END"])


def test_a_reply_cut_at_the_token_limit_is_a_format_error() -> None:
    with OpenAIServer(fake_reply) as server:
        episodes = evaluated_by_verifiers(server, "fake.yaml", "sampling.max_tokens=3")
    assert all(trace.metrics["outcome/format_error"] for episode in episodes for trace in episode.traces)


def test_a_refused_request_is_an_error_of_its_episode_without_a_reward() -> None:
    with OpenAIServer(fake_reply) as server:
        server.fail = lambda body: "long" if "held_out 2" in str(body["messages"]) else ""
        episodes = evaluated_by_verifiers(server, "fake.yaml")
    failed = [episode for episode in episodes if not episode.ok]
    assert [episode.task.data.id for episode in failed] == ["fake/held_out/2"]
    assert failed[0].traces[0].rewards == {}
    assert "maximum context length" in str(failed[0].traces[0].errors)


def test_selected_tasks_share_one_environment_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    import kernelrl_fake

    made, closed = [], []
    first = kernelrl_fake.Evaluator.__init__

    def counted(self: Any, options: Any) -> None:
        made.append(self)
        first(self, options)

    async def close(self: Any) -> None:
        closed.append(self)

    monkeypatch.setattr(kernelrl_fake.Evaluator, "__init__", counted)
    monkeypatch.setattr(kernelrl_fake.Evaluator, "aclose", close)
    with OpenAIServer(fake_reply) as server:
        episodes = evaluated_by_verifiers(server, "fake.yaml", select={"limit": 2})
    assert len(episodes) == 2
    assert len(made) == 1
    assert closed == made


def test_load_environment_has_the_tasks_of_a_split() -> None:
    environment = load_environment("fake.yaml", split="train")
    assert [task.data.id for task in environment.taskset] == [f"fake/train/{number}" for number in range(4)]


def test_verifiers_loads_and_evaluates_an_exported_environment_package(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_verifiers_package(read_recipe("fake.yaml", ["eval.max_tasks=2"]), directory, "my_kernels")
    monkeypatch.syspath_prepend(directory)
    with OpenAIServer(fake_reply) as server:
        config = {"env": {"taskset": {"id": "someone/my-kernels@0.1.0"}}, "model": "tiny", "push": False, "rich": None}
        client = {"base_url": server.url, "api_key_var": "NO_KEY"}
        episodes = asyncio.run(run_eval(EvalConfig.model_validate({**config, "client": client, "output_dir": "vf"})))
    assert rewards_of_episodes(episodes) == {("fake/held_out/0", 0): 0.0, ("fake/held_out/1", 0): 0.7}
    project = tomllib.loads((directory / "pyproject.toml").read_text())["project"]
    assert project["name"] == "my-kernels"
    assert {"verifiers", "kernelrl-adapters[verifiers]"} <= set(project["dependencies"])


def test_a_taskset_without_a_recipe_is_refused() -> None:
    environment = load_environment("")
    with pytest.raises(UsageError, match="no recipe is given"):
        list(environment.taskset)
