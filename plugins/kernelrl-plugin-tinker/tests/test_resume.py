"""A run through the SDK and a local server that is killed at random moments ends like the undisturbed one.

`KERNELRL_TEST_KILLS` sets the number of kills (1 by default), `KERNELRL_TEST_SEED` the moments.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kernelrl_tinker_server.local import LocalServer

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KERNELRL_TEST_KILLS", "1"))

RECIPE = """
seed: 5
tasks:     {use: starter, names: [relu_double, abs_inc, square_dec, row_sum, abs_double, multiply_abs], practice: 20}
backend:   {use: triton}
policy:
  use: tinker
  server: local
  local: {width: 64, layers: 2, heads: 2, context_tokens: 2048, warm_start_steps: 150}
evaluator: {use: local, workers: 1}
evaluation: {trials: 1}
prompt:    {template: brief}
sampling:  {max_tokens: 100}
episode:   {turns: 2}
history:   {keep: {last: 1}}
returns:   {gamma: 0.4}
rewards:
  correct: {use: correctness, weight: 1.0}
  compile: {use: compile, weight: 0.2}
  format:  {use: format, weight: 0.1}
checkers:  {source: {use: source_rules}}
train:
  {tasks_per_step: 2, group_size: 6, steps: 3, substeps: 2, loss: ppo, learning_rate: 2.0e-4, checkpoint_every: 2}
"""


class Place:
    """A working directory with a run."""

    def __init__(self, path: Path, cache: Path, recipe: str = RECIPE) -> None:
        self.path, self.cache = path, cache
        path.mkdir(parents=True)
        (path / "small.yaml").write_text(recipe)

    def start(self) -> subprocess.Popen[bytes]:
        begun = (self.path / "runs/small").exists()
        arguments = ["resume", "small"] if begun else ["run", "small.yaml", "--name", "small"]
        environment = {**os.environ, "KERNELRL_RUN_SECRET": "5a" * 32, "KERNELRL_CACHE_DIR": str(self.cache)}
        environment["TINKER_API_KEY"] = "tml-secret-of-the-user"
        command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", *arguments]
        with (self.path / "output.txt").open("ab") as log:
            return subprocess.Popen(command, cwd=self.path, env=environment, stdout=log, stderr=log)

    def finish(self) -> None:
        assert self.start().wait(timeout=300) == 0, self.output()[-3000:]

    def output(self) -> str:
        return (self.path / "output.txt").read_text()

    def rows(self, name: str) -> list[dict[str, Any]]:
        path = self.path / "runs/small" / f"{name}.jsonl"
        # The last line of a run that goes on may be half written.
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def metrics(self) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if not k.startswith(("time/", "cost/"))} for row in self.rows("metrics")]

    def weights(self) -> dict[str, str]:
        folder = self.path / "runs/small/checkpoints"
        files = sorted(folder.rglob("*.pt"))
        return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def state(self) -> dict[str, Any]:
        path = self.path / "runs/small/state.json"
        return json.loads(path.read_text()) if path.exists() else {"state": "none"}

    def finished(self) -> bool:
        return self.state()["state"] == "finished"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Place:
    """An undisturbed run."""
    folder = tmp_path_factory.mktemp("whole")
    place = Place(folder / "run", folder / "cache")
    place.finish()
    return place


def test_advantages_are_those_of_a_run_in_process(whole: Place, tmp_path: Path) -> None:
    """Policy `torch` with the same sizes: equal replies, returns and advantages, bit for bit, and all not 0."""
    policy = "policy: {use: torch, width: 64, layers: 2, heads: 2, context_tokens: 2048, warm_start: {steps: 150}}\n"
    inside = Place(tmp_path / "run", whole.cache, re.sub(r"policy:\n(  .*\n)+", policy, RECIPE))
    inside.finish()
    assert inside.rows("credits") == whole.rows("credits")
    assert any(row["advantage"] for row in whole.rows("credits"))
    replies = [
        [(row["sample"], row["reply"]["tokens"], row["score"]) for row in sorted(rows, key=lambda row: row["sample"])]
        for rows in (inside.rows("samples"), whole.rows("samples"))
    ]
    assert replies[0] == replies[1]


def test_killed_runs_end_like_the_undisturbed_one(whole: Place, tmp_path: Path) -> None:
    cache = whole.cache
    assert len(whole.weights()) == 6  # two checkpoints with weights and optimizer, and weights to sample from
    assert not all(row["train/skipped"] for row in whole.metrics())
    shutil.rmtree(cache / "verdicts", ignore_errors=True)
    moments = random.Random(int(os.environ.get("KERNELRL_TEST_SEED", "0")))
    place = Place(tmp_path / "killed", cache)
    for _ in range(KILLS):
        _kill_later(place, moments, len(whole.rows("samples")))
    if not place.finished():
        place.finish()
    assert _differences(place.metrics(), whole.metrics()) == []
    assert place.weights() == whole.weights()
    for name in ("samples", "credits"):
        ids = [row["sample"] for row in place.rows(name)]
        assert len(ids) == len(set(ids)), f"{name} holds a sample twice"
        assert set(ids) == {row["sample"] for row in whole.rows(name)}
    _holds_no_key(tmp_path)


def _differences(rows: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[str]:
    """What differs, by step and name, so that a failure says it."""
    found = [f"{len(rows)} and {len(others)} steps"] if len(rows) != len(others) else []
    for row, other in zip(rows, others, strict=False):
        names = [name for name in sorted({*row, *other}) if row.get(name) != other.get(name)]
        found += [f"step {row['step']} {name}: {row.get(name)} and {other.get(name)}" for name in names]
    return found


def _kill_later(place: Place, moments: random.Random, most: int) -> None:
    """Start or resume the run, and kill it a little after some number of samples is written."""
    rows = moments.randint(len(place.rows("samples")), most)
    process = place.start()
    while process.poll() is None and len(place.rows("samples")) < rows:
        time.sleep(0.02)
    time.sleep(moments.uniform(0.0, 1.0))
    process.send_signal(signal.SIGKILL)
    process.wait()


def _holds_no_key(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if b"tml-secret-of-the-user" in path.read_bytes()] == []


def test_a_server_that_goes_away_stops_the_run_and_nothing_is_lost(tmp_path: Path) -> None:
    with LocalServer(state=tmp_path / "server") as server:
        policy = (
            f"policy: {{use: tinker, model: {server.models[0]}, base_url: '{server.base_url}', "
            "renderer: chat_template, give_up_after_s: 2, retries: 1}\n"
        )
        recipe = RECIPE.replace("group_size: 6, steps: 3", "group_size: 2, steps: 2")
        place = Place(tmp_path / "run", tmp_path / "cache", re.sub(r"policy:\n(  .*\n)+", policy, recipe))
        process = place.start()
        while process.poll() is None and not place.rows("samples"):
            time.sleep(0.02)
        server.kill()
        assert process.wait(timeout=120) == 1, place.output()
        assert place.state()["state"] == "failed"
        assert "has not answered for 2 s" in place.output()
        assert "kernelrl resume" in place.output()
        assert "Traceback" not in place.output()
        before = place.rows("samples")
        server.start()
        place.finish()
        assert place.rows("samples")[: len(before)] == before
        assert len(place.rows("metrics")) == 2
    _holds_no_key(tmp_path)
