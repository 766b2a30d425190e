"""A run directory of an earlier version, before `forbid` took its default from the checkers.

`tests/data/former_run/killed` is a run of the fake plugin that was killed in its third step. It has no checkers, and
the default of `forbid`. `whole_metrics.jsonl` has the metrics of the same run where nothing killed it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelrl_testing.waiting import DEADLINE_S

ROOT = Path(__file__).parents[1]
MAIN = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()"]
DATA = ROOT / "data" / "former_run"


@pytest.fixture
def kernelrl(tmp_path: Path) -> Callable[..., str]:
    shutil.copytree(DATA / "killed", tmp_path / "runs" / "killed")

    def run(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "fakes"), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
        command = [*MAIN, *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def metrics(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "cost/"))} for row in rows]


def test_status_reads_it(kernelrl: Callable[..., str]) -> None:
    told = json.loads(kernelrl("status", "runs/killed", "--json"))
    assert (told["state"], told["steps"], told["steps_total"]) == ("killed", 2, 3)
    assert told["last_correct_rate"] == 0.5


def test_resume_ends_as_the_run_that_nothing_killed(kernelrl: Callable[..., str], tmp_path: Path) -> None:
    kernelrl("resume", "runs/killed")
    assert metrics(tmp_path / "runs/killed/metrics.jsonl") == metrics(DATA / "whole_metrics.jsonl")


def test_no_finished_turn_is_sampled_again(kernelrl: Callable[..., str], tmp_path: Path) -> None:
    finished = [json.loads(line)["sample"] for line in (DATA / "killed/samples.jsonl").read_text().splitlines()]
    kernelrl("resume", "runs/killed")
    sampled = (tmp_path / "runs/killed/fake.log").read_text().split()
    assert not set(finished[-4:]) & set(sampled)


def test_eval_reads_its_checkpoint(kernelrl: Callable[..., str]) -> None:
    told = json.loads(kernelrl("eval", "runs/killed", "--json"))
    assert (told["policy"], told["num_correct"]) == ("checkpoint 000002 of run runs/killed", 4)


@pytest.mark.parametrize("form", ["kernels", "dataset"])
def test_export_reads_it(kernelrl: Callable[..., str], tmp_path: Path, form: str) -> None:
    kernelrl("export", "runs/killed", "--as", form, "--output", "out")
    assert any((tmp_path / "out").rglob("*.py" if form == "kernels" else "*.parquet"))
