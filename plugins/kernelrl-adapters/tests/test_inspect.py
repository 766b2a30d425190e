"""The task, the solver and the scorer for Inspect AI, run by Inspect with its mock model."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai")

import tiktoken
from inspect_ai import Task, eval  # noqa: A004
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.model import ContentReasoning, ContentText, ModelOutput, get_model
from inspect_ai.solver import generate

from kernelrl_adapters.inspect import kernel_score, kernels
from kernelrl_adapters.shared import read_recipe
from kernelrl_core.api.errors import UsageError

MODULE = "```python\nclass ModelNew:\n    def forward(self, x):\n        return {!r}\n```"
WRONG, RIGHT = MODULE.format("wrong"), MODULE.format("right")
Reply = Callable[[list[Any]], ModelOutput]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSPECT_DISPLAY", "none")
    monkeypatch.chdir(tmp_path)
    # Inspect counts tokens of the mock model by an encoding of the network.
    one_per_byte = tiktoken.Encoding(
        "bytes", pat_str=r"[\s\S]", mergeable_ranks={bytes([byte]): byte for byte in range(256)}, special_tokens={}
    )
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: one_per_byte)


def first_wrong(messages: list[Any]) -> ModelOutput:
    """Right from the second turn on."""
    return ModelOutput.from_content("mockllm", RIGHT if len(messages) > 2 else WRONG)


def evaluated(tasks: Task, reply: Reply = first_wrong, **options: Any) -> EvalLog:
    model = get_model(
        "mockllm/model", custom_outputs=lambda messages, tools, tool_choice, config: reply(messages), memoize=False
    )
    (log,) = eval(tasks, model=model, **options)
    return log


def values(log: EvalLog) -> dict[str, dict[str, float]]:
    return {str(sample.id): sample.scores["kernel_score"].value for sample in log.samples or []}  # type: ignore


@pytest.fixture
def two_turns(fake_recipe: str) -> Task:
    return kernels(fake_recipe, overrides=["episode.turns=2", "episode.stop=correct", "eval.max_tasks=2"])


def test_the_episode_has_the_turns_of_the_recipe_and_the_score_of_its_best_turn(two_turns: Task) -> None:
    log = evaluated(two_turns)
    assert log.error is None, log.error.message
    found = values(log)
    assert list(found) == ["fake/held_out/0", "fake/held_out/1"]
    assert [one["score"] for one in found.values()] == [0.7, 0.7]
    score = log.samples[0].scores["kernel_score"]  # type: ignore
    assert [turn["outcome"] for turn in score.metadata["turns"]] == ["incorrect", "correct"]
    assert "ModelNew" in score.answer


def test_the_metrics_are_means_over_the_tasks(two_turns: Task) -> None:
    log = evaluated(two_turns)
    assert log.results is not None
    means = {score.name: score.metrics["mean"].value for score in log.results.scores}
    assert means["score"] == 0.7
    assert means["correct"] == 1.0


def test_the_scorer_judges_the_output_of_another_solver(fake_recipe: str, two_turns: Task) -> None:
    other = Task(dataset=two_turns.dataset, solver=generate(), scorer=kernel_score(read_recipe(fake_recipe)))
    log = evaluated(other, lambda messages: ModelOutput.from_content("mockllm", RIGHT))
    assert [one["score"] for one in values(log).values()] == [0.7, 0.7]


def test_a_kernel_in_the_thinking_is_not_judged(two_turns: Task) -> None:
    def thinks(messages: list[Any]) -> ModelOutput:
        output = ModelOutput.from_content("mockllm", "")
        output.choices[0].message.content = [ContentReasoning(reasoning=RIGHT), ContentText(text="I cannot.")]
        return output

    log = evaluated(two_turns, thinks)
    assert {one["correct"] for one in values(log).values()} == {0.0}


def test_a_reply_that_a_limit_cut_has_no_kernel(two_turns: Task) -> None:
    log = evaluated(two_turns, lambda messages: ModelOutput.from_content("mockllm", RIGHT[:-3], "max_tokens"))
    assert {one["correct"] for one in values(log).values()} == {0.0}


def test_an_infrastructure_error_is_an_error_of_the_sample_and_no_score(
    two_turns: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernelrl_fake

    from kernelrl_core.api.errors import InfrastructureError

    async def evaluate(self: Any, request: Any) -> Any:
        raise InfrastructureError("planted")

    monkeypatch.setattr(kernelrl_fake.Evaluator, "evaluate", evaluate)
    log = evaluated(two_turns, fail_on_error=False)
    assert log.samples is not None
    assert all(sample.error is not None and "planted" in sample.error.message for sample in log.samples)
    assert not any(sample.scores for sample in log.samples)


def test_epochs_are_episodes_of_their_own(two_turns: Task) -> None:
    log = evaluated(two_turns, epochs=2, limit=1)
    assert log.samples is not None
    assert [sample.epoch for sample in log.samples] == [1, 2]


def test_a_task_is_made_where_a_loop_is_running_as_inspect_eval_does_it(fake_recipe: str) -> None:
    async def make() -> Task:
        return kernels(fake_recipe, overrides="eval.max_tasks=3")

    assert [sample.id for sample in asyncio.run(make()).dataset] == [f"fake/held_out/{order}" for order in range(3)]


def test_an_unknown_recipe_is_refused() -> None:
    with pytest.raises(UsageError, match="no recipe"):
        kernels("nowhere")


def test_the_log_opens_in_the_viewer(two_turns: Task, tmp_path: Path) -> None:
    """`inspect view bundle` writes the pages that `inspect view` serves."""
    log = evaluated(two_turns, log_dir="logs")
    dumped = inspect("log", "dump", log.location)
    assert json.loads(dumped)["samples"][0]["scores"]["kernel_score"]["value"]["score"] == 0.7
    inspect("view", "bundle", "--log-dir", "logs", "--output-dir", "site")
    assert (tmp_path / "site/index.html").is_file()
    (bundled,) = (tmp_path / "site/logs").glob("*.eval")
    assert values(read_eval_log(str(bundled))) == values(log)


def inspect(*arguments: str) -> str:
    command = [sys.executable, "-m", "inspect_ai", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
