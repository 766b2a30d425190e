"""The loggers of the bundled plugins hold every step once, whenever the process is killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.runs.directory import RunDir

PROCESS = """
import os, sys, time
from pathlib import Path
from kernelrl_core.algorithms.advantages import grpo
from kernelrl_core.monitoring.events import StepFinished
from kernelrl_core.monitoring.loggers import LoggerThreads
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.schema import EvalSettings, TrainSettings, Use
from kernelrl_core.runs.directory import RunDir
from kernelrl_testing.fakes import FakeEnvironment, FakePolicy, FakeTasks, numbered_tasks
from kernelrl_testing.training import make_recipe, train_here

path, name, options, kill_after, seconds = sys.argv[1:]

class Killer:
    def handle(self, event):
        if isinstance(event, StepFinished) and event.metrics["step"] == int(kill_after):
            time.sleep(float(seconds))
            os.kill(os.getpid(), 9)

recipe = make_recipe(
    train=TrainSettings(tasks_per_step=2, group_size=4, steps=6, checkpoint_every=2, learning_rate=0.1),
    eval=EvalSettings(every=2, at_start=True, samples=2),
)
config = registry().config_class("loggers", name)
threads = LoggerThreads({"it": registry().make("loggers", Use(name, config(**eval(options))))})
run = RunDir(Path(path)) if Path(path).exists() else RunDir.create(Path(path), {}, {})
environment = FakeEnvironment(tasks=FakeTasks(numbered_tasks(train=5, held_out=3)))
train_here(run, recipe, environment, FakePolicy(weight=0.3), grpo, threads, Killer())
threads.finish("finished")
"""

Rows = Iterator[dict[str, Any]]


def tensorboard_rows(run: Path) -> Rows:
    """Every record, without the clean-up that TensorBoard does when it reads repeated steps."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event

    from kernelrl_plugin_tensorboard.event_files import event_files

    names = {"Reward/Mean": "reward/mean", "Eval/Pass@1": "eval/pass@1"}
    for path in event_files(run / "tensorboard"):
        for event in map(Event.FromString, RawEventFileLoader(str(path)).Load()):
            yield {"step": event.step} | {names.get(v.tag, v.tag): v.simple_value for v in event.summary.value}


def wandb_rows(run: Path) -> Rows:
    from kernelrl_plugin_wandb.local_data import logged

    for path in sorted(run.glob("wandb/*run-*/*.wandb")):
        for row in logged(path):
            yield {**row, "step": row.get("eval/step", row["step"])}


def trackio_rows(run: Path) -> Rows:
    with sqlite3.connect(run.parent / "trackio/mine.db") as database:
        for step, metrics in database.execute("SELECT step, metrics FROM metrics ORDER BY id"):
            yield {"step": step, **json.loads(metrics)}


def series(rows: Rows, name: str) -> list[tuple[int, float]]:
    return [(row["step"], pytest.approx(row[name], abs=1e-6)) for row in rows if name in row]


@pytest.mark.parametrize(
    ("name", "options", "read"),
    [
        ("tensorboard", {}, tensorboard_rows),
        ("wandb", {"project": "mine", "mode": "offline"}, wandb_rows),
        ("trackio", {"project": "mine"}, trackio_rows),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_killed_run_has_no_gap_and_no_duplicate(
    tmp_path: Path, name: str, options: dict[str, str], read: Callable[[Path], Rows]
) -> None:
    run = tmp_path / "run"

    def process(kill_after: int, seconds: float) -> int:
        command = [sys.executable, "-c", PROCESS, str(run), name, repr(options), str(kill_after), str(seconds)]
        environment = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio")}
        environment.pop("WANDB_SERVICE", None)  # a service of this process would outlive the killed one
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode

    assert process(1, 0.0) == -signal.SIGKILL  # a checkpoint has the step; the logger most likely does not
    assert process(2, 2.0) == -signal.SIGKILL  # the logger has the step; it is after the last checkpoint
    assert process(3, 0.0) == -signal.SIGKILL
    assert process(-1, 0.0) == 0
    metrics = RunDir(run).rows("metrics")
    assert series(read(run), "reward/mean") == [(row["step"], row["reward/mean"]) for row in metrics]
    held_out = [(0, metrics[0]["eval_start/pass@1"])]
    held_out += [(row["step"] + 1, row["eval/pass@1"]) for row in metrics if "eval/pass@1" in row]
    assert [step for step, _ in held_out] == [0, 2, 4, 6]
    assert series(read(run), "eval/pass@1") == held_out
