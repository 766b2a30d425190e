"""`kernelrl runs compare` of runs and of files of `kernelrl eval --output`, with a plugin of fakes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernelrl_command_server import CommandServer

FAKES = Path(__file__).parents[3] / "tests/fakes"
RECIPE = """
tasks:      {use: fake}
backend:    {use: fake}
policy:     {use: fake}
evaluator:  {use: fake}
feedback:   {use: fake}
forbid:     []
rewards:    {correct: {use: fake}}
evaluation: {timing: true}
train:      {tasks_per_step: 2, group_size: 4, steps: 2, learning_rate: 0.5}
eval:       {samples: 4, at_start: true, at_end: true}
"""

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kernelrl(tmp_path: Path, command_server: CommandServer) -> Call:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}

    def call(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return command_server.start(*arguments, cwd=tmp_path, env=environment).result(code)

    return call


def change(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text())
    for row in document["rows"]:
        edit(row)
    path.write_text(json.dumps(document))


def test_runs_are_compared_by_task_recipe_and_cost(kernelrl: Call, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    kernelrl("run", "small.yaml", "--name", "b", "train.learning_rate=0.0")
    # Results are read without the plugins, also from a copy.
    shutil.move(tmp_path / "runs/b", tmp_path / "copy")
    document = json.loads(kernelrl("runs", "compare", "a", "copy", "a@0", "--json").stdout)
    assert [result["name"] for result in document["results"]] == [
        "run runs/a after 2 steps",
        "run copy after 2 steps",
        "run runs/a after 0 steps",
    ]
    assert [result["episodes"] for result in document["results"]] == [16, 16, 16]
    assert [result["steps"] for result in document["results"]] == [2, 2, 0]
    # The time of the whole run is not that of its first evaluation.
    assert [result["seconds_all"] is None for result in document["results"]] == [False, False, True]
    other, earlier = document["comparisons"]
    assert other["recipe"] == ["train.learning_rate (0.5 -> 0.0)"]
    assert earlier["recipe"] == []
    after, before = (
        json.loads(line)
        for path in (tmp_path / "runs/a", tmp_path / "copy")
        for line in (path / "metrics.jsonl").read_text().splitlines()[-1:]
    )
    solved = {row["metric"]: row for row in other["differences"]}["pass@1"]
    assert solved["base"] == pytest.approx(after["eval/pass@1"])
    assert solved["changed"] == pytest.approx(before["eval/pass@1"])
    assert solved["interval"][0] <= solved["difference"] <= solved["interval"][1]
    text = kernelrl("runs", "compare", "a", "copy").stdout
    assert f"{solved['difference']:+.3f}" in text
    assert "train.learning_rate (0.5 -> 0.0)" in text


def test_checkpoints_in_one_file_are_compared(kernelrl: Call) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    kernelrl("eval", "a", "--checkpoint", "base", "--checkpoint", "last", "--output", "both.json")
    document = json.loads(kernelrl("runs", "compare", "both.json", "--json").stdout)
    assert [result["name"] for result in document["results"]] == [
        "both.json: the untrained policy of run runs/a",
        "both.json: checkpoint 000002 of run runs/a",
    ]
    assert document["comparisons"][0]["recipe"] == []


def test_results_on_different_tasks_are_compared_on_the_common_ones(kernelrl: Call, tmp_path: Path) -> None:
    for name in ("a", "b"):
        kernelrl("eval", "small.yaml", "--output", f"{name}.json")
    renamed, edited = "fake/held_out/0", "fake/held_out/1"

    def edit(row: dict[str, Any]) -> None:
        row["task_id"] = "another" if row["task_id"] == renamed else row["task_id"]
        row["task_sha256"] = "0" * 64 if row["task_id"] == edited else row["task_sha256"]

    change(tmp_path / "b.json", edit)
    text = kernelrl("runs", "compare", "a.json", "b.json").stdout
    assert "2 common tasks; excluded: 2 in one of them only, 1 with other contents" in text


def test_results_without_a_common_task_are_refused(kernelrl: Call, tmp_path: Path) -> None:
    kernelrl("eval", "small.yaml", "--output", "a.json")
    kernelrl("eval", "small.yaml", "--split", "train", "--output", "b.json")
    refused = kernelrl("runs", "compare", "a.json", "b.json", code=2).stderr
    assert "have no common task: no task is in both" in refused
    assert "fix: evaluate both on the same split" in refused


def test_without_a_recipe_in_a_file_none_are_compared(kernelrl: Call, tmp_path: Path) -> None:
    kernelrl("eval", "small.yaml", "--output", "a.json")
    document = json.loads((tmp_path / "a.json").read_text())
    del document["recipe"]
    (tmp_path / "b.json").write_text(json.dumps(document))
    assert "the recipes are not compared" in kernelrl("runs", "compare", "a.json", "b.json").stdout


def test_for_a_step_without_evaluation_the_fix_names_a_checkpoint_that_is_left(kernelrl: Call, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a", "eval.at_start=false", "train.steps=3", "train.keep_checkpoints=2")
    for step, checkpoint in (("0", "base"), ("2", "000002"), ("1", "C"), ("9", "C")):
        fix = kernelrl("runs", "compare", "a", f"a@{step}", code=2).stderr.splitlines()[1]
        command = f"kernelrl: fix: kernelrl eval runs/a --checkpoint {checkpoint} --output FILE, then name FILE"
        assert fix == command + ("; C is one of base, 000002, 000003" if checkpoint == "C" else "")
    kernelrl("eval", "runs/a", "--checkpoint", "000002", "--output", "two.json")
    kernelrl("runs", "compare", "a", "two.json")


def test_input_that_is_no_result_is_one_clear_line(kernelrl: Call, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    kernelrl("run", "small.yaml", "--name", "b", "eval.at_start=false", "eval.at_end=false")
    kernelrl("eval", "small.yaml", "--output", "newer.json")
    change(tmp_path / "newer.json", lambda row: row.update(of_the_future=1))
    (tmp_path / "other.json").write_text("{}")
    for arguments, words in (
        (("a",), "nothing to compare with run runs/a after 2 steps"),
        (("a", "b"), "run runs/b has no finished held-out evaluation"),
        (("a", "a@1"), "no held-out evaluation after 1 steps; it has those after 0, 2"),
        (("a", "nowhere"), "no run 'nowhere'"),
        (("a", "small.yaml"), "small.yaml: not a JSON document"),
        (("a", "other.json"), "other.json: no output of kernelrl eval"),
    ):
        refused = kernelrl("runs", "compare", *arguments, code=2).stderr
        assert words in refused
        assert len(refused.splitlines()) <= 3
    assert "its row is damaged, or not of this version" in kernelrl("runs", "compare", "a", "newer.json", code=1).stderr
