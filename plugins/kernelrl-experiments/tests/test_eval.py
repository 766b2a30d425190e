"""`kernelrl eval` with a plugin of fakes: checkpoints, forms of output, interruptions, and directories of others."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernelrl_command_server import Command, CommandServer

from kernelrl_testing.waiting import wait_until

FAKES = Path(__file__).parents[3] / "tests/fakes"
MAIN = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()"]
RECIPE = """
tasks:      {use: fake}
backend:    {use: fake}
policy:     {use: fake}
evaluator:  {use: fake}
feedback:   {use: fake}
forbid:     []
rewards:    {correct: {use: fake}}
episode:    {turns: 2}
returns:    {gamma: 0.4}
evaluation: {timing: true}
train:      {tasks_per_step: 2, group_size: 4, steps: 3, learning_rate: 0.1, keep_checkpoints: 2}
eval:       {samples: 2}
"""

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path, command_server: CommandServer) -> Callable[..., Command]:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    return lambda *arguments: command_server.start(*arguments, cwd=tmp_path, env=environment)


@pytest.fixture
def kernelrl(start: Callable[..., Command]) -> Call:
    def call(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return start(*arguments).result(code)

    return call


def files(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    }


def test_several_checkpoints_are_measured_side_by_side(kernelrl: Call, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    names = [argument for name in ("base", "last", "3") for argument in ("--checkpoint", name)]
    done = kernelrl("eval", "a", *names, "--output", "out.json", "--json")
    shown = json.loads(done.stdout)["evaluations"]
    assert [report["policy"] for report in shown] == [
        "the untrained policy of run runs/a",
        "checkpoint 000003 of run runs/a",
    ]
    written = json.loads((tmp_path / "out.json").read_text())["evaluations"]
    assert [len(report["rows"]) for report in written] == [16, 16]
    assert written[0]["recipe"]["episode"]["turns"] == 2
    assert not list(tmp_path.glob("*.partial"))
    text = kernelrl("eval", "a", *names).stdout
    assert "(2): checkpoint 000003 of run runs/a" in text


def test_the_forms_of_output_have_the_same_values(kernelrl: Call) -> None:
    report = json.loads(kernelrl("eval", "small.yaml", "--samples", "4", "--json").stdout)
    low, high = (report["intervals"]["pass@1"][key] for key in ("low", "high"))
    shown = f"{report['pass@1']:.3f} [{low:.3f}, {high:.3f}] very rough"
    text = kernelrl("eval", "small.yaml", "--samples", "4").stdout
    assert f"  {shown}\n" in text
    markdown = kernelrl("eval", "small.yaml", "--samples", "4", "--format", "md").stdout
    assert f"| pass@1 | {shown} |" in markdown
    rows = list(csv.DictReader(kernelrl("eval", "small.yaml", "--samples", "4", "--format", "csv").stdout.splitlines()))
    values = {(row["part"], row["name"]): row for row in rows}
    assert float(values["all", "pass@1"]["low"]) == low
    assert float(values["level 1", "pass@1"]["value"]) == report["pass@1"]
    assert int(values["turn 2", "outcomes/correct"]["value"]) == report["turns"][1]["outcomes"]["correct"]
    best = report["budgets"][-1]
    assert float(values["4 episodes of 2 turns", "speedup"]["value"]) == best["speedup"]
    assert f"{best['correct']:.3f} {best['speedup']:.2f}x" in text


def test_json_and_format_exclude_each_other(kernelrl: Call) -> None:
    assert "exclude each other" in kernelrl("eval", "small.yaml", "--json", "--format", "md", code=2).stderr


def test_a_removed_or_unknown_checkpoint_lists_those_that_are_left(kernelrl: Call) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    removed = kernelrl("eval", "a", "--checkpoint", "last", "--checkpoint", "1", code=2).stderr
    assert "the files of checkpoint 000001 were removed" in removed
    assert "left: 000002, 000003" in removed
    assert "evaluating" not in removed
    assert "known: 000002, 000003, last, base" in kernelrl("eval", "a", "--checkpoint", "9", code=2).stderr
    assert "did you mean 'base'?" in kernelrl("eval", "a", "--checkpoint", "basis", code=2).stderr


def test_the_nearest_run_or_recipe_is_named(kernelrl: Call) -> None:
    kernelrl("run", "small.yaml", "--name", "demo")
    assert "no run or recipe 'dmo'; did you mean 'demo'?" in kernelrl("eval", "dmo", code=2).stderr
    assert "no run or recipe 'quikstart'; did you mean 'quickstart'?" in kernelrl("eval", "quikstart", code=2).stderr


def test_a_copied_run_is_only_read(kernelrl: Call, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    shutil.copytree(tmp_path / "runs/a", tmp_path / "copy")
    shutil.rmtree(tmp_path / "runs")
    before = files(tmp_path / "copy")
    kernelrl("eval", "copy", "--checkpoint", "base", "--checkpoint", "2", "--output", "out.json")
    assert files(tmp_path / "copy") == before


def test_a_copy_without_the_key_is_evaluated_with_other_inputs(kernelrl: Call, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    (tmp_path / "runs/a/secret.key").unlink()
    assert "the inputs are other random ones than in the run" in kernelrl("eval", "a").stderr


def test_a_killed_evaluation_repeats_nothing_that_was_finished(
    kernelrl: Call, start: Callable[..., Command], tmp_path: Path
) -> None:
    kernelrl("run", "small.yaml", "--name", "a")
    arguments = ("eval", "a", "--checkpoint", "base", "--checkpoint", "last", "--output", "out.json", "--samples", "1")
    slow = "policy.delay_s=0.2"
    process = start(*arguments, slow, "sampling.concurrency=1")
    partial = tmp_path / "out.json.000003.partial"
    wait_until(lambda: partial.exists() and partial.read_text().count("\n") >= 4, process=process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept: list[dict[str, Any]] = [json.loads(line) for line in partial.read_text().splitlines()[1:]]
    with partial.open("a") as stream:
        stream.write('{"sample": "a row without its other keys counts as not finished"}\n')
    kernelrl(*arguments, slow, "sampling.concurrency=1")
    reports = json.loads((tmp_path / "out.json").read_text())["evaluations"]
    again = {row["sample"]: row for row in reports[1]["rows"]}
    assert len(kept) >= 3
    assert all(again[row["sample"]] == row for row in kept)
    assert len(again) == 8
    assert not list(tmp_path.glob("*.partial"))
