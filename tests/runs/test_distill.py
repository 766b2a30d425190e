"""Distillation of a run's best samples, and a warm start on them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelrl_command_server import CommandServer

from kernelrl_core.errors import KernelRLError, UsageError
from kernelrl_core.prompts.sft_file import read_conversations, write_conversations
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.distill import Choice, distill
from kernelrl_core.runs.rows import sample_row
from kernelrl_core.types import Message
from kernelrl_testing.values import make_turn

FAKES = Path(__file__).parents[1] / "fakes"
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
train:     {tasks_per_step: 4, group_size: 3, steps: 2, learning_rate: 0.1}
"""


def row(sample: str, task: str = "t", **changes: Any) -> dict[str, Any]:
    """A row of samples.jsonl; by default correct, clean and without speedup."""
    whole = sample_row(make_turn())
    step, task_index, attempt, turn = map(int, sample.split("."))
    kernel = changes.pop("kernel", f"kernel of {sample}")
    return {
        **whole,
        "sample": sample,
        "step": step,
        "task_index": task_index,
        "attempt": attempt,
        "turn": turn,
        "task_id": task,
        "task_sha256": "0",
        "kernel_sha256": kernel,
        "outcome": "correct",
        "verdict": "clean",
        "verified": None,
        "speedup": changes.pop("speedup", None),
        "score": {"total": changes.pop("reward", 1.0), "parts": {}},
        "prompt": {"messages": changes.pop("messages", [{"role": "user", "content": f"do {task}"}]), "tokens": []},
        "reply": {**whole["reply"], "text": f"answer {sample}"},
        **changes,
    }


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., RunDir]:
    def make(*rows: dict[str, Any]) -> RunDir:
        (tmp_path / "samples.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
        return RunDir(tmp_path)

    return make


def chosen(run: RunDir, **choice: Any) -> list[str]:
    return [entry["sample"] for entry in distill(run, Choice(**choice)).conversations]


def test_only_correct_and_clean_samples_that_did_not_fail_verification_are_selected(run: Callable[..., RunDir]) -> None:
    journal = run(
        row("0.0.0.0"),
        row("0.0.1.0", outcome="incorrect"),
        row("0.0.2.0", verdict="suspect"),
        row("0.0.3.0", verdict="hack", outcome="hacked"),
        row("0.0.4.0", verified=False),
        row("0.0.5.0", verified=True),
    )
    assert chosen(journal) == ["0.0.0.0", "0.0.5.0"]
    assert distill(journal, Choice()).left_out == {
        "not correct": 2,
        "not clean": 1,
        "not correct when judged again": 1,
    }


def test_suspects_are_selected_on_request_and_hacks_never(run: Callable[..., RunDir]) -> None:
    journal = run(row("0.0.0.0", verdict="suspect"), row("0.0.1.0", verdict="hack"))
    assert chosen(journal, suspects=True) == ["0.0.0.0"]


def test_samples_are_ranked_by_speedup_then_score_then_order(run: Callable[..., RunDir]) -> None:
    journal = run(
        row("0.0.0.0", speedup=1.5),
        row("0.0.1.0", speedup=2.0),
        row("0.0.2.0", speedup=1.5, reward=3.0),
        row("0.0.3.0"),
        row("0.0.4.0", speedup=1.5),
    )
    assert chosen(journal, per_task=4) == ["0.0.1.0", "0.0.2.0", "0.0.0.0", "0.0.4.0"]
    assert chosen(journal, per_task=1) == ["0.0.1.0"]
    assert len(chosen(journal, per_task=None)) == 5


def test_the_maximum_is_per_task(run: Callable[..., RunDir]) -> None:
    journal = run(row("0.0.0.0", "a"), row("0.1.0.0", "b"), row("0.1.1.0", "b"), row("1.0.0.0", "a"))
    assert chosen(journal, per_task=1) == ["0.0.0.0", "0.1.0.0"]


def test_a_duplicate_kernel_of_a_task_is_excluded(run: Callable[..., RunDir]) -> None:
    journal = run(
        row("0.0.0.0", kernel="k", speedup=1.1),
        row("0.0.1.0", kernel="k", speedup=1.2),
        row("0.1.0.0", "other", kernel="k", speedup=1.0),
    )
    assert chosen(journal) == ["0.0.1.0", "0.1.0.0"]


def test_slow_and_unmeasured_samples_are_excluded_by_min_speedup(run: Callable[..., RunDir]) -> None:
    journal = run(row("0.0.0.0", speedup=1.0), row("0.0.1.0", speedup=1.2), row("0.0.2.0"))
    assert chosen(journal, min_speedup=1.2) == ["0.0.1.0"]


def test_the_last_row_of_a_retried_turn_counts(run: Callable[..., RunDir]) -> None:
    journal = run(row("0.0.0.0"), row("0.0.1.0"), row("0.0.0.0", outcome="incorrect"))
    assert chosen(journal) == ["0.0.1.0"]


def test_the_reply_ends_the_conversation_of_its_own_prompt(run: Callable[..., RunDir]) -> None:
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    (entry,) = distill(run(row("0.0.0.0", messages=prompt)), Choice()).conversations
    assert entry["messages"] == [*prompt, {"role": "assistant", "content": "answer 0.0.0.0"}]


def test_a_prefill_is_part_of_the_reply(run: Callable[..., RunDir]) -> None:
    """The prefill comes from the recipe, from the model's chat template, or from both."""
    user, push = {"role": "user", "content": "u"}, {"role": "assistant", "content": "<think>\n"}
    for prompt in (
        {"messages": [user, push]},
        {"messages": [user], "opening": "<think>\n"},
        {"messages": [user, push], "opening": "<think>\n"},
    ):
        (entry,) = distill(run(row("0.0.0.0", prompt={"tokens": [], **prompt})), Choice()).conversations
        assert entry["messages"] == [user, {"role": "assistant", "content": "<think>\nanswer 0.0.0.0"}]


def test_a_run_without_a_suitable_sample_is_an_error_with_reasons(run: Callable[..., RunDir]) -> None:
    with pytest.raises(KernelRLError, match="no sample to learn from: 2 not correct, 1 not clean"):
        distill(
            run(
                row("0.0.0.0", outcome="incorrect"),
                row("0.0.1.0", outcome="timeout"),
                row("0.0.2.0", verdict="suspect"),
            ),
            Choice(),
        )


def test_written_conversations_are_read_back(run: Callable[..., RunDir], tmp_path: Path) -> None:
    write_conversations(tmp_path / "best.jsonl", distill(run(row("0.0.0.0", "a")), Choice()).conversations)
    (example,) = read_conversations(tmp_path / "best.jsonl")
    assert example.messages == (Message("user", "do a"),)
    assert (example.reply, example.task_id, example.weight) == ("answer 0.0.0.0", "a", 1.0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "list `messages`"),
        ('{"messages": []}', "list `messages`"),
        ('{"messages": [{"role": "user", "content": "u"}]}', "the last with role assistant"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "the last with role assistant"),
        ('{"messages": [{"role": "tool", "content": "u"}]}', "needs a `role`"),
        ('{"messages": [{"role": "user", "content": null}]}', "needs a `role`"),
        ('{"messages": [{"role":"user","content":"u"},{"role":"assistant","content":"a"}],"weight":-1}', "`weight`"),
        ('{"messages": [{"role":"user","content":"u"},{"role":"assistant","content":"a"}],"task_id":1}', "`task_id`"),
    ],
)
def test_a_line_that_is_not_a_conversation_is_reported(tmp_path: Path, line: str, message: str) -> None:
    good = '{"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], "weight": 2}\n'
    (tmp_path / "data.jsonl").write_text(good + line + "\n")
    with pytest.raises(UsageError, match=r"data\.jsonl:2: ") as failure:
        read_conversations(tmp_path / "data.jsonl")
    assert message in str(failure.value)


@given(st.text() | st.recursive(st.none() | st.text() | st.floats(), st.lists).map(json.dumps))
def test_any_invalid_line_is_an_error_with_file_and_line(line: str) -> None:
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(line.encode("utf-8", "surrogatepass"))
        file.flush()
        with pytest.raises(UsageError, match=r"jsonl"):
            read_conversations(Path(file.name))


def test_line_separators_of_unicode_stay_in_their_texts(tmp_path: Path) -> None:
    text = "one\u2028two\x85three"
    line = {"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text}]}
    (tmp_path / "data.jsonl").write_text(json.dumps(line, ensure_ascii=False) + "\r\n", encoding="utf-8", newline="")
    (example,) = read_conversations(tmp_path / "data.jsonl")
    assert example.reply == example.messages[0].content == text


def test_an_empty_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("\n")
    with pytest.raises(UsageError, match="contains no conversations"):
        read_conversations(tmp_path / "data.jsonl")


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.fixture
def kernelrl(tmp_path: Path, command_server: CommandServer) -> Callable[..., subprocess.CompletedProcess[str]]:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = command_server.run(*arguments, cwd=tmp_path, env=environment)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return call


def test_a_warm_start_on_distilled_samples_reproduces_them(
    kernelrl: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert kernelrl("run", "small.yaml", "--name", "first").returncode == 0
    made = kernelrl("distill", "first", "-o", "best.jsonl", "--per-task", "1", "--json")
    assert made.returncode == 0, made.stderr
    facts = json.loads(made.stdout)
    # The fake policy writes two kernels, of which one is correct.
    assert (facts["samples"], facts["tasks"]) == (4, 4)
    model = ["policy.use=torch", "policy.width=32", "policy.layers=1", "policy.heads=2", "policy.context_tokens=2048"]
    learn = [*model, "policy.warm_start={steps: 80, learning_rate: 0.01}", "demonstrations.file=best.jsonl"]
    measured = kernelrl("eval", "small.yaml", *learn, "sampling.temperature=0", "--split", "train", "--json")
    assert measured.returncode == 0, measured.stderr
    assert json.loads(measured.stdout)["correct_rate"] == 1.0


def test_a_file_for_a_policy_without_warm_start_is_rejected(
    kernelrl: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    conversation = [{"role": "user", "content": "Ask."}, {"role": "assistant", "content": "Answer."}]
    (tmp_path / "best.jsonl").write_text(json.dumps({"messages": conversation}))
    done = kernelrl("run", "small.yaml", "demonstrations.file=best.jsonl")
    assert done.returncode == 2
    assert "policy 'fake' does not warm-start" in done.stderr


def test_a_missing_file_is_a_mistake_in_the_recipe(
    kernelrl: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = kernelrl("validate", "small.yaml", "demonstrations.file=nowhere.jsonl")
    assert done.returncode == 2
    assert "demonstrations.file: no such file" in done.stderr


def test_a_run_without_samples_is_reported_in_one_message(
    kernelrl: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    kernelrl("run", "small.yaml", "train.steps=0", "--name", "empty")
    done = kernelrl("distill", "empty", "-o", "best.jsonl")
    assert done.returncode == 1
    assert "it has no samples" in done.stderr
    assert not (tmp_path / "best.jsonl").exists()
