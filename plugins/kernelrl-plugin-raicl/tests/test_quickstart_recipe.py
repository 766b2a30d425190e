"""Recipe `quickstart_raicl`: the commands of its header, and a short run with scripted replies."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelrl_testing.core import find_recipe

MAIN = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()"]
SCRIPTED = (
    "policy={use: scripted, replies: [{reply: no kernel}]}",
    "train.steps=1",
    "train.tasks_per_step=2",
    "train.group_size=2",
    "eval.samples=1",
    "eval.at_start=false",
)


def header_command(start: str) -> list[str]:
    """Arguments of the first command of the recipe's header that starts with these words."""
    lines = find_recipe("quickstart_raicl").read_text().splitlines()
    found = next(line for line in lines if line.startswith(f"#   kernelrl {start}"))
    return shlex.split(found.removeprefix("#   kernelrl ").partition("     ")[0])


def kernelrl(folder: Path, *arguments: str) -> str:
    done = subprocess.run([*MAIN, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the index of the recipe."""
    path = tmp_path_factory.mktemp("quickstart_raicl")
    kernelrl(path, *header_command("index build"), "--protect", "none")
    return path


def test_the_fix_for_a_missing_index_is_the_command_of_the_header(tmp_path: Path) -> None:
    facts = json.loads(kernelrl(tmp_path, *header_command("run"), "--dry-run", "--json"))
    wanted = header_command("index build")
    wanted[-1] = str(tmp_path / wanted[-1])
    assert facts["missing"] == [f"file {wanted[-1]}; fix: kernelrl {shlex.join(wanted)}"]


def test_dry_run_shows_two_examples_and_the_leak_rate(folder: Path) -> None:
    facts = json.loads(kernelrl(folder, *header_command("run"), "--dry-run", "--json"))
    assert (facts["missing"], facts["examples_per_prompt"]) == ([], 2.0)
    assert 0.0 < facts["leak_rate"] < 1.0


def test_query_of_the_header_prints_examples(folder: Path) -> None:
    assert "starter/" in kernelrl(folder, *header_command("index query"))


def test_prompts_show_two_triton_kernels_that_solve_neither_the_task_nor_a_held_out_task(folder: Path) -> None:
    kernelrl(folder, *header_command("run"), "--name", "scripted", *SCRIPTED)
    rows: list[dict[str, Any]] = []
    for name in ("samples", "eval_samples"):
        journal = folder / "runs" / "scripted" / f"{name}.jsonl"
        rows += [json.loads(line) for line in journal.read_text().splitlines()]
    assert len(rows) == 2 * 2 + 17
    for row in rows:
        prompt = row["prompt"]["messages"][0]["content"]
        assert prompt.count("class ModelNew(nn.Module)") == prompt.count("@triton.jit") == 2
        assert len(row["examples"]) == 2
        assert all(row["task_id"] not in shown["id"] for shown in row["examples"])


def test_ablation_of_the_header_is_planned(folder: Path) -> None:
    facts = json.loads(kernelrl(folder, *header_command("ablate"), "--dry-run", "--json"))
    assert (len(facts["runs"]), facts["tasks"], facts["episodes_per_task"]) == (6, 17, 24)
    assert facts["expected_detectable"] == pytest.approx(0.256, abs=1e-3)
