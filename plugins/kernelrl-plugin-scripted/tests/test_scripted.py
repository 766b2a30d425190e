from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.policies import (
    Loss,
    LossSample,
    Message,
    OptimizerSettings,
    PolicyContext,
    SamplingSettings,
    Update,
)
from kernelrl_plugin_scripted.config import ScriptedConfig, ScriptedReply
from kernelrl_plugin_scripted.policy import ScriptedPolicy
from kernelrl_plugin_scripted.script import read_script
from kernelrl_testing.waiting import DEADLINE_S

RELU = Message("user", "reference: torch.relu(x)")
EXP = Message("user", "reference: torch.exp(x)")


async def _none() -> tuple[()]:
    return ()


def started(*replies: ScriptedReply, **options: Any) -> ScriptedPolicy:
    policy = ScriptedPolicy(ScriptedConfig(replies=replies, **options))
    asyncio.run(policy.start(PolicyContext(0, Path("cache"), None, _none, "", print)))
    return policy


def ask(policy: ScriptedPolicy, *messages: Message, seed: int = 0, **changes: Any):
    values = {"max_tokens": 1000, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "stop": (), "seed": seed} | changes
    return asyncio.run(policy.sample(policy.render(messages), SamplingSettings(**values)))


def test_a_reply_matches_by_text_and_turn() -> None:
    policy = started(
        ScriptedReply("first relu", when="torch.relu", turn=1),
        ScriptedReply("second relu", when=("torch.relu", "wrong"), turn=2),
        ScriptedReply("exp", when="torch.exp"),
    )
    assert ask(policy, RELU).text == "first relu"
    assert ask(policy, RELU, Message("assistant", "first relu"), Message("user", "wrong")).text == "second relu"
    assert ask(policy, EXP, Message("assistant", "<think>")).text == "exp"


def test_an_unmatched_prompt_is_an_error_that_quotes_it() -> None:
    with pytest.raises(UsageError, match=r"turn 1 .*torch\.exp") as caught:
        ask(started(ScriptedReply("x", when="torch.relu")), EXP)
    assert "when" in caught.value.fix


def test_the_seed_selects_one_of_several_matching_replies() -> None:
    policy = started(ScriptedReply("a"), ScriptedReply("b"))
    assert [ask(policy, RELU, seed=seed).text for seed in (0, 1, 0, 3)] == ["a", "b", "a", "b"]
    assert policy.capabilities.deterministic


def test_in_order_uses_each_reply_once_and_cycle_repeats() -> None:
    once, again = (started(ScriptedReply("a"), ScriptedReply("b"), choose=way) for way in ("in_order", "cycle"))
    assert [ask(once, RELU, seed=5).text for _ in range(2)] == ["a", "b"]
    with pytest.raises(UsageError, match="one more was requested"):
        ask(once, RELU)
    assert [ask(again, RELU).text for _ in range(3)] == ["a", "b", "a"]


def test_a_loaded_policy_continues_the_script(tmp_path: Path) -> None:
    policy = started(ScriptedReply("a"), ScriptedReply("b"), choose="in_order")
    ask(policy, RELU)
    state = json.loads(json.dumps(asyncio.run(policy.save(tmp_path))))
    other = started(ScriptedReply("a"), ScriptedReply("b"), choose="in_order")
    asyncio.run(other.load(state, tmp_path))
    assert ask(other, RELU).text == "b"


@given(st.text(max_size=40))
def test_tokens_are_bytes_and_an_end_token(text: str) -> None:
    reply = ask(started(ScriptedReply(text)), RELU)
    assert bytes(reply.tokens[:-1]).decode() == text.encode("utf-8", "replace").decode()
    assert len(reply.logprobs) == len(reply.tokens)
    assert reply.stop_reason == "stop"


def test_token_limits_and_stop_strings_cut_the_reply() -> None:
    policy = started(ScriptedReply("héllo world"))
    cut = ask(policy, RELU, max_tokens=2)
    assert (cut.text, len(cut.tokens), cut.stop_reason) == ("h", 2, "length")
    assert ask(policy, RELU, stop=("lo", "rl")).text == "héllo"


def test_given_logprobs_are_returned_and_their_number_is_checked() -> None:
    assert ask(started(ScriptedReply("ab", logprobs=(-1.0, -2.0, -0.5))), RELU).logprobs == (-1.0, -2.0, -0.5)
    with pytest.raises(UsageError, match="2 logprobs for 3 tokens"):
        started(ScriptedReply("ab", logprobs=(-1.0, -2.0)))


def test_delayed_replies_are_concurrent() -> None:
    policy = started(ScriptedReply("a"), seconds_per_reply=0.2)
    prompt, settings = policy.render([RELU]), SamplingSettings(9, 1.0, 1.0, -1, (), 0)

    async def work() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(policy.sample(prompt, settings) for _ in range(50)))
        return time.perf_counter() - start

    assert 0.2 <= asyncio.run(work()) < 2


def test_an_update_reports_metrics_and_changes_nothing() -> None:
    policy = started(ScriptedReply("a"))
    sample = LossSample("0", (1,), (97, 256), (0.0, 0.0), (0.25, 0.25))
    optimizer = OptimizerSettings(1e-3, 0.9, 0.95, 1e-8, 0.0, None)
    metrics = asyncio.run(policy.update(Update(0, ((sample,),), (), Loss("ppo", 0.2, 0.2), optimizer)))
    assert metrics["loss"] == pytest.approx(-0.5)
    assert metrics["tokens"] == 2
    assert ask(policy, RELU).text == "a"


FILES = {
    "script.jsonl": '{"reply": "a", "when": "relu"}\n\n{"reply": "b", "turn": 2}\n',
    "script.json": '[{"reply": "a", "when": ["relu"]}, {"reply": "b", "turn": 2}]',
    "script.yaml": "- {reply: a, when: relu}\n- reply: b\n  turn: 2\n",
}


@pytest.mark.parametrize("name", FILES)
def test_every_format_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(FILES[name])
    policy = ScriptedPolicy(ScriptedConfig(path=tmp_path / name))
    asyncio.run(policy.start(PolicyContext(0, tmp_path, None, _none, "", print)))
    assert ask(policy, RELU).text == "a"
    assert ask(policy, EXP, Message("assistant", "a"), EXP).text == "b"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("s.jsonl", '{"reply": "a"}\n{"reply"\n', "s.jsonl:2: not JSON"),
        ("s.jsonl", '{"reply": "a", "wen": "x"}\n', "did you mean 'when'"),
        ("s.json", '{"reply": "a"}', "a list of replies"),
        ("s.yaml", "- {reply: 3}\n", "entry 1: `reply` must be a string"),
        ("s.yaml", "- {reply: a, turn: 0}\n", "`turn` must be"),
        ("s.yaml", "- a\n- [\n", "s.yaml:3: not YAML"),
        ("s.yaml", "- {reply: no, reply: a}\n", "s.yaml:1: key 'reply' is given twice"),
        ("s.json", "[", "s.json: not JSON"),
        ("s.yaml", "[]\n", "no replies"),
        ("missing.yaml", None, "cannot read"),
    ],
)
def test_invalid_files_are_refused_with_a_position(tmp_path: Path, name: str, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    policy = ScriptedPolicy(ScriptedConfig(path=tmp_path / name))
    with pytest.raises(UsageError, match=words):
        asyncio.run(policy.start(PolicyContext(0, tmp_path, None, _none, "", print)))


def test_a_script_is_yaml_1_2(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("- {reply: no, logprobs: [-1e-1]}\n")
    assert read_script(tmp_path / "s.yaml") == (ScriptedReply("no", logprobs=(-0.1,)),)


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    assert list(ScriptedConfig(path=tmp_path / "x.jsonl").problems()) == [f"path: no such file: {tmp_path / 'x.jsonl'}"]
    (tmp_path / "x.jsonl").write_text("")
    assert not list(ScriptedConfig(path=tmp_path / "x.jsonl").problems())


def test_path_and_replies_exclude_each_other() -> None:
    assert list(ScriptedConfig().problems())
    assert list(ScriptedConfig(path=Path("x"), replies=(ScriptedReply("a"),)).problems())
    assert not list(ScriptedConfig(replies=(ScriptedReply("a"),)).problems())


RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:
  use: scripted
  replies:
    - reply: |
        ```python
        import torch

        class ModelNew(torch.nn.Module):
            def forward(self, x):
                return 'right'
        ```
    - {reply: nothing}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
train:     {tasks_per_step: 2, group_size: 4, steps: 1}
"""


def test_extended_run_equals_a_run_with_more_steps(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "KERNELRL_RUN_SECRET": "5a" * 32, "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[3] / "tests/fakes")}

    def kernelrl(*arguments: str) -> None:
        command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert done.returncode == 0, done.stderr

    kernelrl("run", "small.yaml", "--name", "a")
    kernelrl("run", "small.yaml", "--name", "a", "--extend", "train.steps=3")
    kernelrl("run", "small.yaml", "--name", "whole", "train.steps=3")
    a, whole = tmp_path / "runs/a", tmp_path / "runs/whole"
    assert (a / "credits.jsonl").read_bytes() == (whole / "credits.jsonl").read_bytes()
    rows = [[json.loads(line) for line in (run / "checkpoints.jsonl").read_text().splitlines()] for run in (a, whole)]
    assert [row["policy"] for row in rows[0]] == [row["policy"] for row in rows[1]]
    assert [row["metrics"]["train/loss"] for row in rows[0]] == [row["metrics"]["train/loss"] for row in rows[1]]
    assert any(row["metrics"]["train/loss"] for row in rows[0])
