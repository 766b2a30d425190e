"""`kernelrl run --detach` and `resume --detach`: a run without a terminal, and early errors with their exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.lock_holder import lock_holder
from kernelrl_testing.waiting import DEADLINE_S, wait_until

FAKES = Path(__file__).parents[1] / "fakes"
MAIN = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()"]
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
train:     {tasks_per_step: 2, group_size: 4, steps: 3, learning_rate: 0.1}
"""

HELD = ("policy.gate=gate",)
"""Overrides for a run that gives its first reply after `go_on`."""

Kernelrl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kernelrl(tmp_path: Path) -> Iterator[Kernelrl]:
    """Runs a command in a new interpreter. At the end, runs that are still active are killed."""
    (tmp_path / "small.yaml").write_text(RECIPE)
    (tmp_path / "gate").write_text("0")
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("TINKER_API_KEY", None)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MAIN, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=DEADLINE_S
        )

    yield run
    for path in (tmp_path / "runs").glob("*"):
        if (holder := lock_holder(RunDir(path))) is not None:
            with holder:
                holder.signal(signal.SIGKILL)


def go_on(folder: Path) -> None:
    (folder / "gate").unlink()


def wait_for_the_end(run: Path) -> str:
    wait_until(lambda: RunDir(run).state()[0] != "running")
    return RunDir(run).state()[0]


def test_a_detached_run_ends_without_the_command_that_started_it(kernelrl: Kernelrl, tmp_path: Path) -> None:
    done = kernelrl("run", "small.yaml", "--name", "a", "--detach", *HELD)
    assert done.returncode == 0, done.stderr
    first, detached, *commands = done.stdout.splitlines()
    pid = int(re.fullmatch(r"detached: runs/a \(process (\d+)\)", detached)[1])  # type: ignore[index]
    assert first == "run: runs/a"
    assert commands == [f"  kernelrl {line}" for line in ("status a", "logs a -f", "watch a", "stop a")]
    assert os.getsid(pid) == pid != os.getsid(0)
    go_on(tmp_path)
    assert wait_for_the_end(tmp_path / "runs/a") == "finished"


def test_the_log_has_each_line_once_and_the_result(kernelrl: Kernelrl, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a", "--detach", *HELD)
    go_on(tmp_path)
    wait_for_the_end(tmp_path / "runs/a")
    log_file = tmp_path / "runs/a/logs.log"
    wait_until(lambda: "state " in log_file.read_text())
    log = log_file.read_text()
    assert log.count("step 1 (2 of 3)") == 1
    assert re.search(r"^state +finished$", log, re.M)


def test_a_detached_run_has_no_terminal(kernelrl: Kernelrl, tmp_path: Path) -> None:
    done = kernelrl("run", "small.yaml", "--name", "a", "--detach", "--json", *HELD)
    pid = json.loads(done.stdout)["pid"]
    # The number of the controlling terminal; 0 without one.
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[4] == "0"
    links = [os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1, 2)]
    assert links == ["/dev/null", *[str(tmp_path / "runs/a/logs.log")] * 2]


def test_a_wrong_recipe_is_reported_and_nothing_is_detached(kernelrl: Kernelrl, tmp_path: Path) -> None:
    failed = kernelrl("run", "small.yaml", "--detach", "train.stps=3")
    assert failed.returncode == 2
    assert "did you mean 'steps'?" in failed.stderr
    assert not (tmp_path / "runs").exists()


def test_a_missing_key_is_reported_with_exit_code_3(kernelrl: Kernelrl, tmp_path: Path) -> None:
    pytest.importorskip("kernelrl_plugin_tinker")
    (tmp_path / "keyed.yaml").write_text("extends: smoke\npolicy: {use: tinker, model: Qwen/Qwen3-8B}\n")
    failed = kernelrl("run", "keyed.yaml", "--detach")
    assert failed.returncode == 3
    assert "missing: environment variable TINKER_API_KEY" in failed.stderr
    assert not (tmp_path / "runs").exists()


def test_a_policy_that_fails_to_start_is_reported_with_the_exit_code(kernelrl: Kernelrl) -> None:
    failed = kernelrl("run", "small.yaml", "--name", "a", "--detach", "policy.fail=start")
    assert failed.returncode == 1
    assert "kernelrl: policy 'fake' failed in start: RuntimeError: planted in start" in failed.stderr
    assert "detached" not in failed.stdout
    assert "Traceback" not in failed.stderr


def test_a_run_that_is_in_use_is_reported(kernelrl: Kernelrl, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a", "--detach", *HELD)
    failed = kernelrl("resume", "a", "--detach")
    assert failed.returncode == 2
    assert "run runs/a is in use by another process" in failed.stderr


def test_a_run_that_ends_early_prints_its_result(kernelrl: Kernelrl) -> None:
    done = kernelrl("run", "small.yaml", "--name", "a", "--detach", "train.steps=1")
    assert done.returncode == 0
    assert re.search(r"^state +finished$", done.stdout, re.M)
    assert "detached" not in done.stdout


def test_a_stopped_run_resumes_detached(kernelrl: Kernelrl, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a", "--detach", *HELD)
    assert kernelrl("stop", "a", "--now").returncode == 0
    assert RunDir(tmp_path / "runs/a").state()[0] == "stopped"
    done = kernelrl("resume", "a", "--detach")
    assert (done.returncode, "detached: runs/a" in done.stdout) == (0, True)
    go_on(tmp_path)
    assert wait_for_the_end(tmp_path / "runs/a") == "finished"
    finished = kernelrl("resume", "a", "--detach")
    assert (finished.returncode, "detached" in finished.stdout) == (0, False)


def test_a_dry_run_cannot_be_detached(kernelrl: Kernelrl) -> None:
    failed = kernelrl("run", "small.yaml", "--detach", "--dry-run")
    assert (failed.returncode, "--detach and --dry-run exclude each other" in failed.stderr) == (2, True)


def test_ctrl_c_before_the_run_is_detached_stops_it(kernelrl: Kernelrl, tmp_path: Path) -> None:
    command = [*MAIN, "run", "small.yaml", "--name", "a", "--detach", "policy.start_s=60"]
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True) as launcher:
        log = tmp_path / "runs/a/logs.log"
        wait_until(lambda: log.exists() and log.stat().st_size, process=launcher)
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(timeout=DEADLINE_S) == 130
    assert wait_for_the_end(tmp_path / "runs/a") == "stopped"
