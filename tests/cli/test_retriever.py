"""Commands on a recipe with a retriever: plan, missing index, provenance, resume, held-out evaluation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

FAKES = Path(__file__).parents[1] / "fakes"
MAIN = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()"]
RECIPE = """
seed: 1
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
retriever: {use: fake, index: index.json, k: 2}
train:     {tasks_per_step: 2, group_size: 4, steps: 3, learning_rate: 0.0}
eval:      {at_start: false, at_end: false, every: null}
"""
TASK = "class Model: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n# {} {}"
REFERENCE = (
    "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.{}(x) * x.sum()\n"
)
KERNEL = "class ModelNew: pass  # {}"


@attrs.frozen
class Place:
    """A working directory with a recipe and an index of four examples, one of which solves a held-out task."""

    path: Path

    def index(self, name: str = "index.json", comment: str = "") -> None:
        ids = ["leak", "first", "second", "third"]
        references = [TASK.format("held_out", 0), *(REFERENCE.format(name) for name in ("tanh", "softmax", "cumsum"))]
        rows = [
            {"id": id_, "reference": reference, "kernel": KERNEL.format(id_ + comment)}
            for id_, reference in zip(ids, references, strict=True)
        ]
        (self.path / name).write_text(json.dumps(rows))

    def call(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(self.path / "cache")}
        done = subprocess.run(
            [*MAIN, *arguments], cwd=self.path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code, done.stderr
        return done

    def rows(self, name: str = "samples", run: str = "a") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "runs" / run / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "r.yaml").write_text(RECIPE)
    made = Place(tmp_path)
    made.index()
    return made


@pytest.fixture
def run(place: Place) -> Place:
    place.call("run", "r.yaml", "--name", "a")
    return place


def test_dry_run_counts_examples_their_tokens_and_the_leak_rate(place: Place) -> None:
    facts = json.loads(place.call("run", "r.yaml", "--dry-run", "--json").stdout)
    without = json.loads(place.call("run", "r.yaml", "--dry-run", "--json", "retriever=null").stdout)
    assert facts["examples_per_prompt"] == 2.0
    assert facts["leak_rate"] == 0.5
    assert facts["example_tokens_per_prompt"] > 10
    assert facts["prompt_tokens_per_step"] != without["prompt_tokens_per_step"]
    assert not {"examples_per_prompt", "leak_rate"} & set(without)


def test_missing_index_is_a_line_of_the_dry_run_with_the_command_that_builds_it(place: Place) -> None:
    (place.path / "index.json").unlink()
    printed = place.call("run", "r.yaml", "--dry-run").stdout
    path = place.path / "index.json"
    assert f"missing: file {path}; fix: kernelrl index build --backend fake --output {path}" in printed


def test_missing_index_ends_the_run_with_exit_code_3_before_anything_is_written(place: Place) -> None:
    (place.path / "index.json").unlink()
    done = place.call("run", "r.yaml", "--name", "a", code=3)
    assert "kernelrl index build" in done.stderr
    assert not (place.path / "runs").exists()


def test_validate_needs_no_index(place: Place) -> None:
    (place.path / "index.json").unlink()
    assert place.call("validate", "r.yaml").stdout == "r: ok\n"


def test_first_lines_of_a_run_print_the_leak_rate(place: Place) -> None:
    done = place.call("run", "r.yaml", "--name", "a")
    assert "retriever 'fake': 50% of the first 2 examples for 4 tasks are leaks and excluded" in done.stderr


def test_samples_record_shown_and_excluded_examples(run: Place) -> None:
    row = run.rows()[0]
    assert [one["id"] for one in row["examples"]] == ["first", "second"]
    assert row["excluded_examples"] == [
        {"id": "leak", "origin": "fake@1", "similarity": 0.5, "reason": "leak_held_out"}
    ]
    prompt = "".join(message["content"] for message in row["prompt"]["messages"])
    assert KERNEL.format("first") in prompt
    assert KERNEL.format("leak") not in prompt


def test_credits_name_the_examples(run: Place) -> None:
    assert all(len(row["examples"]) == 2 for row in run.rows("credits"))


def test_provenance_has_the_identity_of_the_index(run: Place) -> None:
    provenance = json.loads((run.path / "runs/a/provenance.json").read_text())
    assert set(provenance["retriever"]) == {"sha256"}


def test_resumed_run_equals_the_whole_one_although_the_retriever_learns(run: Place) -> None:
    """The resumed steps show the examples that the interrupted ones showed."""
    whole = {row["sample"]: row["examples"] for row in run.rows()}
    assert len({json.dumps(examples) for examples in whole.values()}) > 1, "the retriever learned nothing"
    folder = run.path / "runs/a"
    for name, kept in (("checkpoints", 1), ("metrics", 1), ("credits", 8), ("samples", 11)):
        lines = (folder / f"{name}.jsonl").read_text().splitlines(keepends=True)
        (folder / f"{name}.jsonl").write_text("".join(lines[:kept]))
    (folder / "state.json").write_text(json.dumps({"state": "killed", "error": ""}))
    run.call("resume", "a")
    assert {row["sample"]: row["examples"] for row in run.rows()} == whole


def test_resume_refuses_another_index(run: Place) -> None:
    (run.path / "runs/a/state.json").write_text(json.dumps({"state": "stopped", "error": ""}))
    run.index(comment=" changed")
    done = run.call("resume", "a", code=2)
    assert "the retriever searches other data than when run runs/a started" in done.stderr


def test_held_out_evaluation_of_a_run_refuses_another_index(run: Place) -> None:
    run.index(comment=" changed")
    assert "name another one: retriever.index=DIR" in run.call("eval", "runs/a", code=2).stderr


def test_held_out_evaluation_of_a_run_takes_another_index_that_is_named(run: Place) -> None:
    run.index("other.json", comment=" other")
    run.call("eval", "runs/a", f"retriever.index={run.path / 'other.json'}", "--output", "report.json")
    report = json.loads((run.path / "report.json").read_text())
    prompt = "".join(message["content"] for message in report["rows"][0]["prompt"]["messages"])
    assert "first other" in prompt


def test_held_out_evaluation_shows_the_examples_of_the_learned_state(run: Place) -> None:
    run.call("eval", "runs/a", "--output", "report.json")
    report = json.loads((run.path / "report.json").read_text())
    state = run.rows("checkpoints")[-1]["loop"]["retriever"]
    best = sorted(["first", "second", "third"], key=lambda name: -state.get(name, 0.0))[:2]
    assert [one["id"] for one in report["rows"][0]["examples"]] == best
