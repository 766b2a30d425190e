"""`kernelrl check` with a plugin of fakes: several kernels, folders, the cache, changes of files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kernelrl_command_server import Command, CommandServer

FAKES = Path(__file__).parents[1] / "fakes"
KERNEL = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {value!r}\n"
FAKE = ("-b", "fake", "-e", "fake", "checkers=null", "forbid=[]")
TASK = "fake/train/0"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path, command_server: CommandServer) -> Callable[..., Command]:
    environment = {**os.environ, "PYTHONPATH": str(FAKES), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    (tmp_path / "kernels").mkdir()
    for name, value in (("good", "right"), ("bad", "wrong"), ("_skipped", "wrong")):
        (tmp_path / "kernels" / f"{name}.py").write_text(KERNEL.format(value=value))
    return lambda *arguments: command_server.start("check", TASK, *arguments, cwd=tmp_path, env=environment)


@pytest.fixture
def check(start: Callable[..., Command]) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        process = start(*arguments, *FAKE)
        out, err = process.communicate(timeout=60)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    return run


def wait_for(process: Command, condition: Callable[[str, str], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition(*process.so_far()):
        assert process.poll() is None, process.so_far()
        assert time.monotonic() < deadline, process.so_far()
        time.sleep(0.02)


def test_a_folder_gives_one_block_per_kernel_and_a_table(check: Run) -> None:
    done = check("kernels")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == ["kernels/bad.py:", "incorrect; no hack found  fake/train/0"]
    assert done.stdout.splitlines()[-3:] == [
        "kernels/bad.py   incorrect  no hack found",
        "kernels/good.py  correct    no hack found  speedup 1.50",
        "1 of 2 correct",
    ]


def test_json_has_one_object_per_line_in_the_order_of_the_arguments(check: Run) -> None:
    done = check("kernels/good.py", "kernels/bad.py", "kernels/good.py", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["kernel"], one["outcome"]) for one in found] == [
        ("kernels/good.py", "correct"),
        ("kernels/bad.py", "incorrect"),
    ]
    assert check("kernels/good.py", "--json").returncode == 0


def test_seconds_add_up_to_the_wall_time(check: Run) -> None:
    begin = time.monotonic()
    found = json.loads(check("kernels/good.py", "--json").stdout)
    wall_s = time.monotonic() - begin
    assert {"run", "check", "wait"} <= found["seconds"].keys()
    assert 0 < sum(found["seconds"].values()) <= wall_s or found["seconds"]["wait"] == 0


def test_the_cache_works_without_a_seed_and_a_cached_result_is_marked(check: Run) -> None:
    first, second = check("kernels/good.py", "--cache"), check("kernels/good.py", "--cache")
    assert "cached" not in first.stdout
    assert "cached    this is the result of an earlier check with the same seed" in second.stdout
    found = json.loads(check("kernels/good.py", "--cache", "--json").stdout)
    assert found["provenance"]["cached"] is True
    assert found["seconds"].keys() == {"check", "wait"}


def test_a_missing_file_among_several_is_reported_before_an_evaluation(check: Run) -> None:
    done = check("kernels/good.py", "nowhere.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nowhere.py: kernel file cannot be read: No such file" in done.stderr


def test_a_folder_without_kernels_and_no_kernel_at_all_are_errors(check: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty: the directory has no file *.py" in check("empty").stderr
    assert "no kernel is given" in check("seed=1").stderr


def test_a_changed_kernel_is_evaluated_again(start: Callable[..., Command], tmp_path: Path) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        pytest.skip("SIGINT is ignored here, as in a job in the background of a shell")
    process = start("kernels/bad.py", "--watch", "--json", *FAKE)
    wait_for(process, lambda out, err: "watching for changes" in err)
    time.sleep(0.1)  # the first look at the files
    (tmp_path / "kernels/bad.py").write_text(KERNEL.format(value="right") + "# changed\n")
    wait_for(process, lambda out, err: out.count("\n") == 2)
    assert [json.loads(line)["outcome"] for line in process.so_far()[0].splitlines()] == ["incorrect", "correct"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_strict_fails_for_a_suspect() -> None:
    from kernelrl_core.cli.check import _exit_code
    from kernelrl_core.cli.check_kernels import CheckedKernel
    from kernelrl_core.testing.values import make_turn
    from kernelrl_core.types import Outcome, Verdict

    suspect = CheckedKernel("k.py", make_turn(Outcome.CORRECT, verdict=Verdict.SUSPECT), 1.0)
    clean = CheckedKernel("k.py", make_turn(Outcome.CORRECT), 1.0)
    assert [_exit_code([clean, suspect], strict=strict) for strict in (False, True)] == [0, 1]
    assert _exit_code([clean], strict=True) == 0
