"""Whole runs through the SDK and a local server: equal to policy `torch`, and resumed after the server ended.

`benchmarks/resume.py --policy tinker` kills such a run 20 times.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelrl_testing.waiting import DEADLINE_S, wait_until
from kernelrl_tinker_server.local import LocalServer

pytestmark = pytest.mark.slow

FAKES = Path(__file__).parents[3] / "tests/fakes"
RECIPE = """
seed: 5
tasks:     {use: starter, names: [relu_double, abs_inc, square_dec, row_sum, abs_double, multiply_abs], practice: 20}
backend:   {use: triton}
policy:
  use: tinker
  server: local
  local: {width: 64, layers: 2, heads: 2, context_tokens: 2048, warm_start_steps: 10}
evaluator: {use: fake}
evaluation: {trials: 1}
prompt:    {template: brief}
sampling:  {max_tokens: 40}
episode:   {turns: 2}
history:   {keep: {last: 1}}
returns:   {gamma: 0.4}
feedback:  {use: fake}
forbid:    []
rewards:   {text: {use: fake, of_text: true}}
train:
  {tasks_per_step: 2, group_size: 4, steps: 2, substeps: 2, loss: ppo, learning_rate: 2.0e-4, checkpoint_every: 1}
"""
"""Replies are scored by their characters, so that an almost untrained model has advantages other than 0."""


class Place:
    """A working directory with a run."""

    def __init__(self, path: Path, cache: Path, recipe: str = RECIPE) -> None:
        self.path, self.cache = path, cache
        path.mkdir(parents=True)
        (path / "small.yaml").write_text(recipe)

    def start(self) -> subprocess.Popen[bytes]:
        exists = (self.path / "runs/small").exists()
        arguments = ["resume", "small"] if exists else ["run", "small.yaml", "--name", "small"]
        environment = {**os.environ, "KERNELRL_RUN_SECRET": "5a" * 32, "KERNELRL_CACHE_DIR": str(self.cache)}
        environment |= {"PYTHONPATH": str(FAKES), "TINKER_API_KEY": "tml-secret-of-the-user"}
        command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", *arguments]
        with (self.path / "output.txt").open("ab") as log:
            return subprocess.Popen(command, cwd=self.path, env=environment, stdout=log, stderr=log)

    def finish(self) -> None:
        assert self.start().wait(timeout=300) == 0, self.output()[-3000:]

    def output(self) -> str:
        return (self.path / "output.txt").read_text()

    def rows(self, name: str) -> list[dict[str, Any]]:
        path = self.path / "runs/small" / f"{name}.jsonl"
        # The last line of a running run may be incomplete.
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def state(self) -> dict[str, Any]:
        path = self.path / "runs/small/state.json"
        return json.loads(path.read_text()) if path.exists() else {"state": "none"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Place:
    """A finished run."""
    folder = tmp_path_factory.mktemp("whole")
    place = Place(folder / "run", folder / "cache")
    place.finish()
    return place


def test_advantages_are_those_of_a_run_in_process(whole: Place, tmp_path: Path) -> None:
    """Policy `torch` with the same sizes has bitwise equal replies, returns and advantages, some of them not 0."""
    policy = "policy: {use: torch, width: 64, layers: 2, heads: 2, context_tokens: 2048, warm_start: {steps: 10}}\n"
    inside = Place(tmp_path / "run", whole.cache, re.sub(r"policy:\n(  .*\n)+", policy, RECIPE))
    inside.finish()
    assert inside.rows("credits") == whole.rows("credits")
    assert any(row["advantage"] for row in whole.rows("credits"))
    replies = [
        [(row["sample"], row["reply"]["tokens"], row["score"]) for row in sorted(rows, key=lambda row: row["sample"])]
        for rows in (inside.rows("samples"), whole.rows("samples"))
    ]
    assert replies[0] == replies[1]
    _holds_no_key(whole.path.parent)


def test_a_checkpoint_has_weights_optimizer_state_and_sampler_weights(whole: Place) -> None:
    folder = whole.path / "runs/small/checkpoints"
    assert [len(list(path.rglob("*.pt"))) for path in sorted(folder.iterdir())] == [3, 3]


def _holds_no_key(folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert [path for path in files if b"tml-secret-of-the-user" in path.read_bytes()] == []


def test_an_ended_server_stops_the_run_and_no_sample_is_lost(tmp_path: Path) -> None:
    with LocalServer(state=tmp_path / "server") as server:
        policy = (
            f"policy: {{use: tinker, model: {server.models[0]}, base_url: '{server.base_url}', "
            "renderer: chat_template, give_up_after_s: 6, retries: 1}\n"
        )
        recipe = RECIPE.replace("group_size: 4", "group_size: 2")
        place = Place(tmp_path / "run", tmp_path / "cache", re.sub(r"policy:\n(  .*\n)+", policy, recipe))
        process = place.start()
        wait_until(lambda: place.rows("samples"), process=process)
        server.kill()
        assert process.wait(timeout=DEADLINE_S) == 1, place.output()
        assert place.state()["state"] == "failed"
        assert "has not responded for 6 s" in place.output()
        assert "kernelrl resume" in place.output()
        assert "Traceback" not in place.output()
        before = place.rows("samples")
        server.start()
        place.finish()
        assert place.rows("samples")[: len(before)] == before
        assert len(place.rows("metrics")) == 2
    _holds_no_key(tmp_path)
