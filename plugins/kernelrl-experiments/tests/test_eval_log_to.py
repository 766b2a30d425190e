"""`kernelrl eval --log-to RUN`: the loggers of a run get an evaluation that was made later."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from kernelrl_command_server import CommandServer

from kernelrl_core.runs.directory import RunDir

FAKES = Path(__file__).parents[3] / "tests/fakes"
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
feedback:  {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
loggers:   {mine: {use: fake}}
train:     {tasks_per_step: 2, group_size: 4, steps: 2, learning_rate: 0.1}
eval:      {samples: 2}
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kernelrl(tmp_path: Path, command_server: CommandServer) -> Run:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return command_server.start(*arguments, cwd=tmp_path, env=environment).result()

    return run


@pytest.fixture
def finished(kernelrl: Run, tmp_path: Path) -> Path:
    """A finished run of two steps, `a`, whose log of the fake logger is then empty."""
    assert kernelrl("run", "small.yaml", "--name", "a").returncode == 0
    log = tmp_path / "runs/a/fake.log"
    log.write_text("")
    return log


def test_the_loggers_of_the_run_get_the_evaluation_at_the_step_of_the_checkpoint(kernelrl: Run, finished: Path) -> None:
    done = kernelrl("eval", "runs/a", "--checkpoint", "1", "--log-to", "a")
    assert done.returncode == 0, done.stderr
    assert finished.read_text().splitlines() == ["start 2", "evaluation after 1", "finish finished"]
    assert "sent to mine of run a, at step 1" in done.stderr


def test_another_step_can_be_named(kernelrl: Run, finished: Path) -> None:
    assert kernelrl("eval", "small.yaml", "--log-to", "a", "--step", "40").returncode == 0
    assert "evaluation after 40" in finished.read_text()


def test_a_run_in_use_is_refused_before_the_evaluation(kernelrl: Run, finished: Path, tmp_path: Path) -> None:
    run = RunDir(tmp_path / "runs/a")
    run.lock()
    done = kernelrl("eval", "runs/a", "--log-to", "a")
    run.unlock()
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "kernelrl: run runs/a is in use by another process"


def test_a_finished_run_gets_a_logger_by_an_edit_of_its_recipe_alone(kernelrl: Run, tmp_path: Path) -> None:
    assert kernelrl("run", "small.yaml", "--name", "b", "loggers.mine=null").returncode == 0
    recipe = tmp_path / "runs/b/recipe.yaml"
    done = kernelrl("eval", "runs/b", "--log-to", "b")
    assert (done.returncode, done.stderr.splitlines()) == (
        2,
        [
            "kernelrl: run runs/b has no loggers",
            "kernelrl: fix: write loggers: {tensorboard: {use: tensorboard}} into runs/b/recipe.yaml, then repeat this",
            "kernelrl: more: kernelrl explain tensorboard",
        ],
    )
    recipe.write_text(recipe.read_text().replace("loggers: {}", "loggers: {mine: {use: fake}}"))
    assert kernelrl("eval", "runs/b", "--log-to", "b").returncode == 0


def test_a_step_alone_is_refused(kernelrl: Run) -> None:
    done = kernelrl("eval", "small.yaml", "--step", "3")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "kernelrl: --step has no effect without --log-to"
