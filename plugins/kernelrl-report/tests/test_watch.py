"""`kernelrl watch`: the view of finished, active, damaged and hostile runs, on a terminal and without one."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernelrl_command_server import Command, CommandServer

from kernelrl_core.api.runs import RunDir
from kernelrl_report.observer import RunObserver
from kernelrl_report.watch_view import bar, curve, fitted, printable, view_lines
from kernelrl_testing.core import Progress
from kernelrl_testing.waiting import DEADLINE_S, wait_until

ROOT = Path(__file__).parents[3] / "tests"
FORMER = ROOT / "data" / "former_run" / "killed"
RECIPE = """
tasks:     {use: fake}
backend:   {use: fake}
policy:    {use: fake}
evaluator: {use: fake}
forbid:    []
rewards:   {correct: {use: fake}}
cost:      {prices: {prompt: 1.0, reply: 1.0, train: 1.0}, budget_usd: 1.0}
train:     {tasks_per_step: 2, group_size: 4, steps: 3, learning_rate: 0.1}
"""

Kernelrl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path, command_server: CommandServer) -> Callable[..., Command]:
    (tmp_path / "small.yaml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "fakes"), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}
    return lambda *arguments: command_server.start(*arguments, cwd=tmp_path, env=environment)


@pytest.fixture
def kernelrl(start: Callable[..., Command]) -> Kernelrl:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        process = start(*arguments)
        out, err = process.communicate()
        assert "Traceback" not in err, err
        assert process.returncode is not None
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    return run


@pytest.fixture
def former(tmp_path: Path) -> Path:
    run = tmp_path / "runs" / "former"
    shutil.copytree(FORMER, run)
    (run / "logs.log").touch()
    return run


def observed(run: Path) -> RunObserver:
    observer = RunObserver(RunDir(run))
    observer.update()
    return observer


def text(run: Path, width: int = 100) -> str:
    return "\n".join(line.plain for line in view_lines(observed(run), width))


def test_the_view_of_a_finished_run_has_every_section(kernelrl: Kernelrl) -> None:
    assert kernelrl("run", "small.yaml", "--name", "a").returncode == 0
    shown = kernelrl("watch", "a")
    assert shown.returncode == 0
    assert re.search(r"^run +runs/a\nstate +finished$", shown.stdout, re.M)
    assert re.search(r"^steps +3 of 3 +█+  [\d.]+ s per step$", shown.stdout, re.M)
    assert re.search(r"^cost +0\.00\d of 1\.00 USD +░+  0\.00\d USD per step", shown.stdout, re.M)
    for line in ("reward", "correct", "where the seconds are spent", "slowest evaluations"):
        assert f"\n{line}" in shown.stdout


def test_the_lines_of_an_active_run_follow_it_to_its_end(kernelrl: Kernelrl, start: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.write_text("1")
    process = start("run", "small.yaml", "--name", "a", f"policy.gate={gate}", "train.steps=8")
    wait_until((tmp_path / "runs/a/samples.jsonl").exists, process=process)
    watch = start("watch", "a")
    wait_until(lambda: watch.so_far()[0], process=watch)
    gate.unlink()
    shown, _ = watch.communicate()
    assert process.communicate()[1].count("step ") >= 8
    assert shown.splitlines()[-1] == "state finished"
    assert "\nstep 7 (8 of 8)  reward " in shown


def test_a_terminal_shows_the_view_and_ctrl_c_leaves_the_run_alone(start: Any, tmp_path: Path) -> None:
    process = start("run", "small.yaml", "--name", "a", "policy.delay_s=60")
    wait_until((tmp_path / "runs/a/begun.jsonl").exists, process=process)
    command = [sys.executable, "-c", "from kernelrl_core.cli.main import main; main()", "watch", "a"]
    terminal, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=inner, stdout=inner, stderr=inner) as watch:
        os.close(inner)
        seen = _read_until(terminal, "running")
        assert "\x1b[?1049h" in seen  # the alternate screen
        watch.send_signal(signal.SIGINT)
        assert "the run continues; stop it with: kernelrl stop runs/a" in _read_until(terminal, "stop runs/a")
        assert watch.wait(timeout=DEADLINE_S) == 0
    os.close(terminal)
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()


def _read_until(terminal: int, words: str) -> str:
    seen, deadline = b"", time.monotonic() + 30
    while words.encode() not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 1)[0]:
            seen += os.read(terminal, 65536)
    return seen.decode(errors="replace")


def test_a_picture_has_the_lines_of_the_view(kernelrl: Kernelrl, former: Path, tmp_path: Path) -> None:
    assert kernelrl("watch", "former", "--svg", "view.svg").returncode == 0
    picture = (tmp_path / "view.svg").read_text()
    assert picture.startswith("<svg")
    assert "slowest" in picture
    assert re.findall(r"(?:url\(|href=)\W*(?!#)\w+:", picture) == []
    refused = kernelrl("watch", "former", "--svg", "none/view.svg")
    assert (refused.returncode, refused.stderr) == (2, "kernelrl: --svg none/view.svg: No such file or directory\n")


def test_the_view_writes_nothing_into_the_run(kernelrl: Kernelrl, former: Path) -> None:
    def files() -> dict[str, int]:
        return {str(path): path.stat().st_mtime_ns for path in [former, *former.rglob("*")]}

    before = files()
    for command in (("watch",), ("status",), ("logs",), ("runs", "show"), ("runs", "suspects")):
        assert kernelrl(*command, "former").returncode == 0
    assert files() == before


def test_a_read_only_file_system_is_enough(former: Path, tmp_path: Path) -> None:
    space = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-ec"]
    mount = f"mount --bind {former} {former}; mount -o remount,ro,bind {former}; ! touch {former}/x 2>/dev/null"
    if shutil.which("unshare") is None or subprocess.run([*space, mount], capture_output=True).returncode:
        pytest.skip("this process may not mount in a namespace")
    program = f"{sys.executable} -c 'from kernelrl_core.cli.main import main; main()'"
    commands = [
        f"{program} {name} former" for name in ("watch", "status", "logs", "runs show", "runs suspects", "stop")
    ]
    done = subprocess.run([*space, "; ".join([mount, *commands])], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("kernelrl: ")) == (0, 0), done.stderr
    assert "runs/former: not active (killed)" in done.stdout


@pytest.mark.parametrize("height", [6, 12, 24, 50])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_view_fits_the_terminal(former: Path, width: int, height: int) -> None:
    lines = fitted(observed(former), width, height)
    assert len(lines) <= height
    assert max(line.cell_len for line in lines) <= width
    assert lines[1].plain == "state            killed"


@pytest.mark.parametrize(
    ("progress", "lines"),
    [
        (
            {"phase": "step 3", "total": 8, "done": 4, "correct": 1},
            ["now              step 3 +█+░+  4 of 8 samples", "  25% correct; [^ ]+ samples/s; at most .* left"],
        ),
        ({"phase": "step 3", "total": 8, "detail": "a build"}, ["now +step 3 +░+  0 of 8 samples", "  a build$"]),
        ({"phase": "start", "detail": "warm start"}, [r"now +start: \d+ s; warm start; stops after"]),
    ],
)
def test_an_active_run_shows_the_present_phase(former: Path, progress: dict[str, Any], lines: list[str]) -> None:
    run = RunDir(former)
    run.lock()
    run.set_progress({**Progress(**progress).facts(), "stopping": True})
    shown = text(former)
    run.unlock()
    assert re.search(r"^state +running, stops after this step$", shown, re.M)
    assert re.search(r"^steps +2 of 3 .* per step; about .* left$", shown, re.M)
    for line in lines:
        assert re.search(line, shown, re.M), shown


def test_a_failed_run_shows_its_error_and_the_phase_in_which_it_ended(former: Path) -> None:
    (former / "state.json").write_text(
        json.dumps({"state": "failed", "error": "disk\x1b full\nfix", "progress": Progress("step 3", 8).facts()})
    )
    shown = text(former)
    assert re.search("^error +disk\ufffd full$", shown, re.M)
    assert re.search(r"^ended in +step 3: \d+ s; 0 of at most 8 samples$", shown, re.M)


@pytest.mark.parametrize(
    ("cost", "metrics", "line"),
    [
        (
            "{budget_usd: 4}",
            {"cost/total_usd": 1.0, "cost/usd": 0.5},
            "cost +1.00 of 4.00 USD +█+░+  0.500 USD per step",
        ),
        ("{}", {"cost/total_usd": 1.0}, "cost +1.00 USD, no budget$"),
        (
            "{}",
            {"cost/reply_tokens": 1200.0, "cost/gpu_seconds": 90.0},
            "1,200 reply tokens; 90.0 s of GPU time; nothing",
        ),
    ],
)
def test_the_cost_is_shown_against_the_budget(former: Path, cost: str, metrics: dict[str, float], line: str) -> None:
    (former / "recipe.yaml").write_text(f"cost: {cost}\n")
    row = {"step": 0, "progress/done_frac": 0.5, "time/total": 1.0, **metrics}
    (former / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert re.search(line, text(former), re.M), text(former)


def test_the_line_of_a_finding_has_its_samples_and_its_trend(former: Path) -> None:
    rows = [json.loads(line) for line in (former / "samples.jsonl").read_text().splitlines()]
    rows[0] |= {"findings": [{"rule": "no_kernel", "severity": "suspect", "evidence": ""}], "verdict": "suspect"}
    rows[0] |= {"outcome": "correct"}
    (former / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown = text(former)
    assert re.search("^no_kernel +1 of 20 samples, 0% of the first step, 0% of the last$", shown, re.M)
    assert re.search("^to review +1 samples: kernelrl runs suspects former$", shown, re.M)


def test_a_run_without_samples_shows_its_state(former: Path) -> None:
    for path in former.glob("*.jsonl"):
        path.write_text("")
    assert "0 of 3" in text(former)
    assert "cost" not in text(former)
    (former / "recipe.yaml").write_text("cost: {budget_usd: 2}\n")
    assert re.search("^cost +budget 2.00 USD; cost known after the first step$", text(former), re.M)
    assert "slowest" not in text(former)


def test_a_run_with_missing_files_shows_its_state(former: Path) -> None:
    for path in former.iterdir():
        if path.name != "recipe.yaml" and path.is_file():
            path.unlink()
    assert "\nstate            killed" in text(former)


def test_a_damaged_last_row_is_skipped_and_an_earlier_one_named(kernelrl: Kernelrl, former: Path) -> None:
    metrics = former / "metrics.jsonl"
    with metrics.open("a") as file:
        file.write('{"step": 2, "rew')
    assert "2 of 3" in kernelrl("watch", "former").stdout
    rows = metrics.read_text().splitlines()
    metrics.write_text("\n".join(["xx", *rows[1:]]))
    for command in ("watch", "status"):
        failed = kernelrl(command, "former")
        assert (failed.returncode, failed.stderr.splitlines()) == (
            1,
            [
                "kernelrl: runs/former/metrics.jsonl:1: the line is not a JSON object",
                "kernelrl: fix: restore the file from a copy, or start a new run",
                "kernelrl: more: kernelrl explain run-files",
            ],
        )


def test_a_newer_run_is_refused_and_listed(kernelrl: Kernelrl, former: Path) -> None:
    provenance = json.loads((former / "provenance.json").read_text())
    (former / "provenance.json").write_text(json.dumps({**provenance, "kernelrl": "99.0.0"}))
    for command in (("watch",), ("status",), ("logs",), ("runs", "show"), ("runs", "suspects"), ("resume",)):
        failed = kernelrl(*command, "former")
        assert failed.returncode == 2
        assert "run runs/former was written by kernelrl 99.0.0, and this is" in failed.stderr
    assert "runs/former  damaged    run runs/former was written by" in kernelrl("runs", "list").stdout


def test_a_run_without_its_log_is_one_line_with_the_fix(kernelrl: Kernelrl, former: Path) -> None:
    (former / "logs.log").unlink()
    failed = kernelrl("logs", "former")
    assert failed.returncode == 1
    assert failed.stderr.startswith("kernelrl: runs/former/logs.log does not exist\nkernelrl: fix: restore it from")


def test_a_missing_run_is_named_with_the_nearest(kernelrl: Kernelrl, former: Path) -> None:
    failed = kernelrl("watch", "fromer")
    assert failed.returncode == 2
    assert "no run 'fromer'" in failed.stderr
    assert "did you mean 'former'?" in failed.stderr


def test_hostile_texts_cannot_change_the_terminal(former: Path) -> None:
    hostile = "\x1b[2J\x1b]0;title\x07\u202e[bold]evil[/bold]" + "x" * 1_000_000
    row = json.loads((former / "samples.jsonl").read_text().splitlines()[0])
    row |= {
        "sample": "9.0.0.0",
        "task_id": hostile,
        "findings": [{"rule": hostile, "severity": "hack", "evidence": ""}],
    }
    row["evaluation"]["seconds"] = {"run": 100.0}
    with (former / "samples.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    shown = text(former)
    assert "[bold]evil[/bold]" in shown
    assert shown.replace("\n", "").isprintable()
    assert max(map(len, shown.splitlines())) <= 100


def test_a_curve_has_one_block_per_column() -> None:
    assert curve([0, 7], 10) == "▁█"
    assert curve([3, 3, 3], 10) == "▁▁▁"
    assert curve([*[0] * 50, *[1] * 50], 4) == "▁▁██"


def test_a_bar_stays_within_its_columns() -> None:
    assert (bar(-1, 4), bar(0.5, 4), bar(7, 4)) == ("░░░░", "██░░", "████")


def test_control_and_bidirectional_characters_are_replaced() -> None:
    assert printable("a\x1b[2J\u202eb\n") == "a�[2J�b�"
