"""`kernelrl stop`, and `kernelrl status` without a run: only the process that holds the lock gets the signal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from kernelrl_command_server import Command, CommandServer

from kernelrl_core.cli.stop import command
from kernelrl_core.errors import KernelRLError
from kernelrl_core.runs import lock_holder as module
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.lock_holder import LockHolder, lock_holder
from kernelrl_testing.waiting import DEADLINE_S, wait_until

FAKES = Path(__file__).parents[1] / "fakes"
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake, delay_s: 0.3}
evaluator: {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
train:     {tasks_per_step: 2, group_size: 4, steps: 200, learning_rate: 0.1}
"""

Start = Callable[..., Command]


@pytest.fixture
def start(tmp_path: Path, command_server: CommandServer) -> Iterator[Start]:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    started = []

    def starter(*arguments: str) -> Command:
        started.append(command_server.start(*arguments, cwd=tmp_path, env=environment))
        return started[-1]

    yield starter
    for process in started:
        process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.fixture
def kernelrl(start: Start) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = start(*arguments)
        out, err = process.communicate()
        assert process.returncode == code, err
        return subprocess.CompletedProcess(arguments, code, out, err)

    return run


@pytest.fixture
def active(start: Start, tmp_path: Path) -> Callable[..., Command]:
    """Starts a run, and returns when it has its first sample."""

    def starter(name: str, *overrides: str) -> Command:
        process = start("run", "small.yaml", "--name", name, *overrides)
        samples = tmp_path / "runs" / name / "samples.jsonl"
        wait_until(lambda: samples.exists() and samples.stat().st_size, process=process)
        return process

    return starter


def state(tmp_path: Path, name: str = "a") -> Any:
    return json.loads((tmp_path / "runs" / name / "state.json").read_text())["state"]


def rows(tmp_path: Path, journal: str, name: str = "a") -> int:
    return (tmp_path / "runs" / name / f"{journal}.jsonl").read_text().count("\n")


def test_a_stopped_run_finishes_its_step(kernelrl: Any, active: Any, tmp_path: Path) -> None:
    process = active("a")
    shown = kernelrl("stop", "a").stdout
    assert shown == f"runs/a: stops after its step (process {process.pid}); kernelrl status a\n"
    process.communicate()
    assert (process.returncode, state(tmp_path)) == (130, "stopped")
    assert rows(tmp_path, "checkpoints") == rows(tmp_path, "metrics") > 0


def test_a_second_stop_changes_nothing(kernelrl: Any, active: Any, tmp_path: Path) -> None:
    # Eight turns, so that the step lasts long after its first sample.
    process = active("a", "policy.delay_s=0.8", "episode.turns=8")
    kernelrl("stop", "a")
    recorded = tmp_path / "runs/a/state.json"
    wait_until(lambda: json.loads(recorded.read_text()).get("progress", {}).get("stopping"), process=process)
    assert "stops after this step" in kernelrl("status", "a").stdout
    assert "already stops after its step" in kernelrl("stop", "a").stdout
    process.communicate()
    assert rows(tmp_path, "checkpoints") > 0


def test_now_stops_the_run_at_once_and_waits(kernelrl: Any, active: Any, tmp_path: Path) -> None:
    process = active("a")
    assert kernelrl("stop", "a", "--now").stdout.startswith(
        f"runs/a: stopped (process {process.pid}); kernelrl resume a"
    )
    assert (process.poll(), state(tmp_path)) == (130, "stopped")


def test_all_stops_every_active_run(kernelrl: Any, active: Any, tmp_path: Path) -> None:
    processes = [active("a"), active("b")]
    shown = kernelrl("stop", "--all", "--now").stdout
    assert [line.split(":")[0] for line in shown.splitlines()] == ["runs/a", "runs/b"]
    assert [process.poll() for process in processes] == [130, 130]
    assert kernelrl("stop", "--all").stderr == "no run below ./runs is active\n"


def test_a_run_that_is_not_active_is_left_alone(kernelrl: Any, tmp_path: Path) -> None:
    kernelrl("run", "small.yaml", "--name", "a", "train.steps=1", "policy.delay_s=0")
    assert kernelrl("stop", "a").stdout == "runs/a: not active (finished)\n"


@pytest.mark.parametrize("arguments", [(), ("a", "--all")])
def test_runs_and_all_exclude_each_other(kernelrl: Any, arguments: tuple[str, ...]) -> None:
    assert "name the runs to stop, or give --all" in kernelrl("stop", *arguments, code=2).stderr


def test_status_without_a_run_lists_the_active_runs(kernelrl: Any, active: Any) -> None:
    kernelrl("run", "small.yaml", "--name", "old", "train.steps=1", "policy.delay_s=0")
    assert "no run below ./runs is active" in kernelrl("status").stderr
    active("a")
    listed = kernelrl("status").stdout
    assert re.match(r"runs/a  \d+ of 200 steps", listed)
    assert "old" not in listed
    assert [run["run"] for run in json.loads(kernelrl("status", "--json").stdout)["runs"]] == ["runs/a"]


# --- the holder of the lock ---

HOLD = """
import sys, time
from pathlib import Path
from kernelrl_core.runs.directory import RunDir
run = RunDir(Path(sys.argv[1]))
run.lock()
print("locked", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_the_process_with_the_lock_is_found_and_not_the_recorded_one(
    holder: subprocess.Popen[str], tmp_path: Path
) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"state": "running", "pid": os.getpid()}))
    found = lock_holder(RunDir(tmp_path))
    assert found is not None
    with found:
        assert found.pid == holder.pid
        found.signal(signal.SIGTERM)
        assert found.wait(DEADLINE_S)
    assert holder.wait() == -signal.SIGTERM


def test_a_free_lock_has_no_holder(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    assert lock_holder(RunDir(tmp_path)) is None


def test_a_process_that_only_opened_the_file_is_not_the_holder(holder: subprocess.Popen[str], tmp_path: Path) -> None:
    with (tmp_path / "lock").open():
        found = lock_holder(RunDir(tmp_path))
    assert found is not None
    with found:
        assert found.pid == holder.pid


def test_a_signal_to_a_process_that_has_ended_reaches_no_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with LockHolder(process.pid) as found:
        process.communicate()
        found.signal(signal.SIGKILL)
        assert found.wait(0)


def test_a_holder_that_is_not_visible_is_an_error(
    holder: subprocess.Popen[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PROC", tmp_path / "none")
    with pytest.raises(KernelRLError, match="is in use by a process that is not visible here"):
        lock_holder(RunDir(tmp_path))


def test_a_process_that_ignores_the_signals_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Deaf:
        pid = 7
        signals: ClassVar[list[signal.Signals]] = []

        def signal(self, number: signal.Signals) -> None:
            self.signals.append(number)

        def wait(self, seconds: float) -> bool:
            return False

        def __enter__(self) -> Deaf:
            return self

        def __exit__(self, *error: object) -> None: ...

    locked = RunDir.create(tmp_path / "run", {}, {})
    monkeypatch.setattr("kernelrl_core.cli.stop.lock_holder", lambda run: Deaf())
    done = CliRunner().invoke(command, [str(tmp_path / "run"), "--now"])
    locked.unlock()
    assert done.output == f"{tmp_path}/run: killed (process 7); kernelrl resume run\n"
    assert Deaf.signals == [signal.SIGTERM, signal.SIGTERM, signal.SIGKILL]
