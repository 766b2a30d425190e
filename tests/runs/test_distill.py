"""A run's best samples as supervised data, and a warm start on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.errors import KernelRLError, UsageError
from kernelrl_core.prompts.sft_file import read_conversations, write_conversations
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.distill import Choice, distill
from kernelrl_core.types import Message

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
    """A row of samples.jsonl as far as distillation reads it; correct, clean and unmeasured unless told otherwise."""
    step, task_index, attempt, turn = map(int, sample.split("."))
    kernel = changes.pop("kernel", f"kernel of {sample}")
    return {
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
        "score": {"total": changes.pop("reward", 1.0)},
        "prompt": {"messages": changes.pop("messages", [{"role": "user", "content": f"do {task}"}])},
        "reply": {"text": f"answer {sample}"},
        "extraction": {"candidate": {"backend": "triton"}},
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


def test_only_correct_and_clean_samples_that_stood_a_second_judgement_are_taken(run: Callable[..., RunDir]) -> None:
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


def test_suspects_are_taken_when_asked_for_and_hacks_never(run: Callable[..., RunDir]) -> None:
    journal = run(row("0.0.0.0", verdict="suspect"), row("0.0.1.0", verdict="hack"))
    assert chosen(journal, suspects=True) == ["0.0.0.0"]


def test_the_best_of_a_task_are_the_fastest_then_the_best_paid_then_the_earliest(run: Callable[..., RunDir]) -> None:
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


def test_the_best_are_counted_per_task(run: Callable[..., RunDir]) -> None:
    journal = run(row("0.0.0.0", "a"), row("0.1.0.0", "b"), row("0.1.1.0", "b"), row("1.0.0.0", "a"))
    assert chosen(journal, per_task=1) == ["0.0.0.0", "0.1.0.0"]


def test_a_kernel_stands_once_for_a_task_with_its_best_measurement(run: Callable[..., RunDir]) -> None:
    journal = run(
        row("0.0.0.0", kernel="k", speedup=1.1),
        row("0.0.1.0", kernel="k", speedup=1.2),
        row("0.1.0.0", "other", kernel="k", speedup=1.0),
    )
    assert chosen(journal) == ["0.0.1.0", "0.1.0.0"]


def test_slow_and_unmeasured_samples_fall_to_a_least_speedup(run: Callable[..., RunDir]) -> None:
    journal = run(row("0.0.0.0", speedup=1.0), row("0.0.1.0", speedup=1.2), row("0.0.2.0"))
    assert chosen(journal, min_speedup=1.2) == ["0.0.1.0"]


def test_of_a_turn_that_was_tried_again_the_last_row_counts(run: Callable[..., RunDir]) -> None:
    journal = run(row("0.0.0.0"), row("0.0.1.0"), row("0.0.0.0", outcome="incorrect"))
    assert chosen(journal) == ["0.0.1.0"]


def test_the_reply_ends_the_conversation_of_its_own_prompt(run: Callable[..., RunDir]) -> None:
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    (entry,) = distill(run(row("0.0.0.0", messages=asked)), Choice()).conversations
    assert entry["messages"] == [*asked, {"role": "assistant", "content": "answer 0.0.0.0"}]


def test_an_opened_thought_is_part_of_the_reply(run: Callable[..., RunDir]) -> None:
    """Whether the recipe has opened it, the model's chat template, or both."""
    user, push = {"role": "user", "content": "u"}, {"role": "assistant", "content": "<think>\n"}
    for prompt in (
        {"messages": [user, push]},
        {"messages": [user], "opening": "<think>\n"},
        {"messages": [user, push], "opening": "<think>\n"},
    ):
        (entry,) = distill(run(row("0.0.0.0", prompt=prompt)), Choice()).conversations
        assert entry["messages"] == [user, {"role": "assistant", "content": "<think>\nanswer 0.0.0.0"}]


def test_a_run_without_a_good_sample_says_why(run: Callable[..., RunDir]) -> None:
    with pytest.raises(KernelRLError, match="no sample to learn from: 2 not correct, 1 not clean"):
        distill(
            run(
                row("0.0.0.0", outcome="incorrect"),
                row("0.0.1.0", outcome="timeout"),
                row("0.0.2.0", verdict="suspect"),
            ),
            Choice(),
        )


def test_what_is_written_is_read_back(run: Callable[..., RunDir], tmp_path: Path) -> None:
    write_conversations(tmp_path / "best.jsonl", distill(run(row("0.0.0.0", "a")), Choice()).conversations)
    (example,) = read_conversations(tmp_path / "best.jsonl")
    assert example.messages == (Message("user", "do a"),)
    assert (example.reply, example.task_id, example.weight) == ("answer 0.0.0.0", "a", 1.0)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "not JSON"),
        ("[1]", "list `messages`"),
        ('{"messages": []}', "list `messages`"),
        ('{"messages": [{"role": "user", "content": "u"}]}', "must be the assistant's"),
        ('{"messages": [{"role": "assistant", "content": "a"}]}', "must be the assistant's"),
        ('{"messages": [{"role": "tool", "content": "u"}]}', "`role` out of"),
        ('{"messages": [{"role": "user", "content": null}]}', "`role` out of"),
        ('{"messages": [{"role":"user","content":"u"},{"role":"assistant","content":"a"}],"weight":-1}', "`weight`"),
        ('{"messages": [{"role":"user","content":"u"},{"role":"assistant","content":"a"}],"task_id":1}', "`task_id`"),
    ],
)
def test_a_line_that_is_no_conversation_is_named(tmp_path: Path, line: str, told: str) -> None:
    good = '{"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], "weight": 2}\n'
    (tmp_path / "data.jsonl").write_text(good + line + "\n")
    with pytest.raises(UsageError, match=r"data\.jsonl:2: ") as failure:
        read_conversations(tmp_path / "data.jsonl")
    assert told in str(failure.value)


@given(st.text() | st.recursive(st.none() | st.text() | st.floats(), st.lists).map(json.dumps))
def test_any_line_is_a_conversation_or_a_mistake_with_its_place(line: str) -> None:
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(line.encode("utf-8", "surrogatepass"))
        file.flush()
        with pytest.raises(UsageError, match=r"jsonl"):
            read_conversations(Path(file.name))


def test_line_separators_of_unicode_stay_in_their_texts(tmp_path: Path) -> None:
    said = "one\u2028two\x85three"
    line = {"messages": [{"role": "user", "content": said}, {"role": "assistant", "content": said}]}
    (tmp_path / "data.jsonl").write_text(json.dumps(line, ensure_ascii=False) + "\r\n", encoding="utf-8", newline="")
    (example,) = read_conversations(tmp_path / "data.jsonl")
    assert example.reply == example.messages[0].content == said


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("\n")
    with pytest.raises(UsageError, match="holds no conversations"):
        read_conversations(tmp_path / "data.jsonl")


# --- the command line -----------------------------------------------------------------------------------------------


@pytest.fixture
def kernelrl(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        main = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()"]
        done = subprocess.run(
            [*main, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return call


def test_a_warm_start_on_what_a_run_found_gives_a_model_that_answers_like_it(
    kernelrl: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    assert kernelrl("run", "small.yaml", "--name", "first").returncode == 0
    made = kernelrl("distill", "first", "-o", "best.jsonl", "--per-task", "1", "--json")
    assert made.returncode == 0, made.stderr
    facts = json.loads(made.stdout)
    # The fake policy writes two kernels, of which one is right.
    assert (facts["samples"], facts["tasks"]) == (4, 4)
    model = ["policy.use=torch", "policy.width=32", "policy.layers=1", "policy.heads=2", "policy.context_tokens=2048"]
    learn = [*model, "policy.warm_start={steps: 80, learning_rate: 0.01}", "demonstrations.file=best.jsonl"]
    measured = kernelrl("eval", "small.yaml", *learn, "sampling.temperature=0", "--split", "train", "--json")
    assert measured.returncode == 0, measured.stderr
    assert json.loads(measured.stdout)["correct_rate"] == 1.0


def test_a_file_for_a_policy_that_does_not_warm_start_is_refused(
    kernelrl: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    conversation = [{"role": "user", "content": "Ask."}, {"role": "assistant", "content": "Answer."}]
    (tmp_path / "best.jsonl").write_text(json.dumps({"messages": conversation}))
    done = kernelrl("run", "small.yaml", "demonstrations.file=best.jsonl")
    assert done.returncode == 2
    assert "policy 'fake' does not warm-start" in done.stderr


def test_a_file_that_is_not_there_is_a_mistake_of_the_recipe(
    kernelrl: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = kernelrl("validate", "small.yaml", "demonstrations.file=nowhere.jsonl")
    assert done.returncode == 2
    assert "demonstrations.file: there is no file" in done.stderr


def test_a_run_without_samples_ends_with_one_message(
    kernelrl: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    kernelrl("run", "small.yaml", "train.steps=0", "--name", "empty")
    done = kernelrl("distill", "empty", "-o", "best.jsonl")
    assert done.returncode == 1
    assert "it has no samples" in done.stderr
    assert not (tmp_path / "best.jsonl").exists()
