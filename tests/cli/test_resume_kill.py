"""A run killed with `kill -9` at a random moment ends like the undisturbed one, bit for bit.

`KERNELRL_TEST_KILLS` sets the number of kills (1 by default), `KERNELRL_TEST_SEED` the moments. `benchmarks/resume.py`
kills 20 times, with a larger model and with other policies.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelrl_testing.waiting import takes, wait_until

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KERNELRL_TEST_KILLS", "1"))

RECIPE = """
seed: 5
tasks:     {use: starter, names: [relu_double, abs_inc, square_dec, row_sum, abs_double, multiply_abs], practice: 20}
backend:   {use: triton}
policy:    {use: torch, width: 64, layers: 2, heads: 2, context_tokens: 2048, warm_start: {steps: 160}}
evaluator: {use: local, workers: 1}
evaluation: {trials: 1}
prompt:    {template: brief}
sampling:  {max_tokens: 120}
episode:   {turns: 2}
history:   {keep: {last: 1}}
returns:   {gamma: 0.4}
advantage: {use: per_turn}
rewards:
  correct: {use: correctness, weight: 1.0}
  compile: {use: compile, weight: 0.2}
  format:  {use: format, weight: 0.1}
checkers:  {source: {use: source_rules}}
train:
  {tasks_per_step: 2, group_size: 4, steps: 2, learning_rate: 2.0e-4, checkpoint_every: 1, length_norm: max_tokens}
eval:      {every: 2, samples: 1, max_tasks: 2}
"""


class Place:
    """A working directory with runs and a cache of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        (path / "small.yaml").write_text(RECIPE)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "KERNELRL_RUN_SECRET": "5a" * 32,
            "KERNELRL_CACHE_DIR": str(self.path / "cache"),
        }
        code = "from kernelrl_core.cli.main import main; main()"
        log = (self.path / "output.txt").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-c", code, *arguments], cwd=self.path, env=environment, stdout=log, stderr=log
            )

    def run(self, *arguments: str) -> None:
        code = self.start(*arguments).wait(timeout=300)
        assert code == 0, (self.path / "output.txt").read_text()[-3000:]

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "runs/small" / f"{name}.jsonl").read_text().splitlines()]

    def written(self) -> int:
        """Rows of all journals."""
        return sum(path.read_bytes().count(b"\n") for path in self.path.glob("runs/small/*.jsonl"))

    def metrics(self) -> list[dict[str, Any]]:
        rows = self.rows("metrics")
        return [{k: v for k, v in row.items() if not k.startswith(("time/", "cost/"))} for row in rows]

    def weights(self) -> dict[str, str]:
        folder = self.path / "runs/small/checkpoints"
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_killed_runs_end_like_the_undisturbed_one(tmp_path: Path) -> None:
    whole = Place(tmp_path / "whole")
    whole.run("run", "small.yaml", "--name", "small")  # with an empty cache: the warm start is made here
    assert not all(row["train/skipped"] for row in whole.metrics()), "no step was trained, so the comparison is empty"

    moments = random.Random(int(os.environ.get("KERNELRL_TEST_SEED", "0")))
    kills = number = 0
    while kills < KILLS:
        place = _fresh(whole, tmp_path / f"killed{number}")
        number += 1
        while not _finished(place):
            begun = (place.path / "runs/small").exists()
            process = place.start("resume", "small") if begun else place.start("run", "small.yaml", "--name", "small")
            if kills < KILLS:
                kills += _kill_at(moments, process, place, whole)
            else:
                process.wait(timeout=300)
            assert process.returncode in (0, -signal.SIGKILL), (place.path / "output.txt").read_text()[-3000:]
        _compare(place, whole)


def _kill_at(moments: random.Random, process: subprocess.Popen[bytes], place: Place, whole: Place) -> bool:
    """Kill the process shortly after some number of rows is written; returns whether it was still alive."""
    # Rows of attempts that were lost stay, so that there may be more than in the undisturbed run.
    rows = moments.randint(min(place.written(), whole.written()), whole.written())
    wait_until(lambda: process.poll() is not None or place.written() >= rows)
    takes(moments.uniform(0.0, 0.3))
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    return alive


def _fresh(origin: Place, path: Path) -> Place:
    """A place with the warm start of another, and without its verdicts."""
    place = Place(path)
    shutil.copytree(origin.path / "cache", path / "cache", dirs_exist_ok=True)
    shutil.rmtree(path / "cache" / "verdicts", ignore_errors=True)
    return place


def _finished(place: Place) -> bool:
    state = place.path / "runs/small/state.json"
    return state.exists() and json.loads(state.read_text())["state"] == "finished"


def _compare(place: Place, whole: Place) -> None:
    assert place.metrics() == whole.metrics()
    assert place.weights() == whole.weights()
    for name in ("samples", "credits", "eval_samples"):
        ids = [row["sample"] for row in place.rows(name)]
        assert len(ids) == len(set(ids)), f"{name} holds a sample twice"
        assert set(ids) == {row["sample"] for row in whole.rows(name)}
