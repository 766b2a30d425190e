"""`kernelrl lab --command`: programs that read a kernel and execute none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner
from kernelrl_command_server import CommandServer

from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.tasks import Task
from kernelrl_lab.command import command
from kernelrl_lab.program import Program, ProgramResult, measure_program, read_program, summary_lines
from kernelrl_lab.suite import Hack, SuiteKernel
from kernelrl_testing.waiting import wait_until

TASK = "class Model: ...\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"
PYTHON = (sys.executable, "-I", "-S", "-c")
HACK = Hack("A title", "values", "triton", "cpu", frozenset({"incorrect"}), "It does nothing.")

Measure = Callable[..., tuple[ProgramResult, ...]]


def kernel(source: str = "", *, hack: Hack | None = None, id_: str = "k") -> SuiteKernel:
    class_ = hack.class_ if hack is not None else "honest"
    return SuiteKernel(id_, Task("t", TASK), source, "triton", frozenset({"cpu"}), hack, class_)


def measure(code: str, *kernels: SuiteKernel, limit_s: float = 20.0, **options: Any) -> tuple[ProgramResult, ...]:
    jobs = options.pop("jobs", 1)
    program = Program((*PYTHON, code, "{task}", "{kernel}", "{backend}"), limit_s, **options)
    return asyncio.run(measure_program(kernels or (kernel(),), program, jobs=jobs))


def shell(script: str, *kernels: SuiteKernel, **options: Any) -> tuple[ProgramResult, ...]:
    """Like `measure`, for a shell script with `$1` the task and `$2` the kernel."""
    program = Program(("sh", "-c", script, "sh", "{task}", "{kernel}"), options.pop("limit_s", 20.0), **options)
    return asyncio.run(measure_program(kernels or (kernel(),), program))


def printing(**result: object) -> str:
    return f"echo {shlex.quote(json.dumps(result))}"


def test_a_program_gets_task_kernel_and_backend() -> None:
    code = (
        "import json, os, sys; task, kernel, backend = sys.argv[1:]\n"
        "texts = [open(path).read() for path in (task, kernel)]\n"
        "print(json.dumps({'correct': True, 'message': repr((texts, backend, os.environ['TRITON_INTERPRET']))}))"
    )
    (found,) = measure(code, kernel("x = 'é'\n"))
    assert found.message == repr(([TASK, "x = 'é'\n"], "triton", "1"))


@pytest.mark.parametrize(
    ("script", "state", "speedup"),
    [
        (printing(correct=True), "correct", None),
        (printing(correct=True, speedup=2), "correct", 2),
        (printing(correct=False, speedup=None), "incorrect", None),
        (printing(correct=True, verdict="suspect"), "flagged", None),
        (printing(correct=True, verdict="clean"), "correct", None),
        ("echo loading; " + printing(correct=False) + "; " + printing(correct=True) + "; echo done", "correct", None),
        (printing(correct=True) + "; exit 1", "correct", None),
        (printing(correct="yes"), "no_result", None),
        (printing(correct=True, speedup="fast"), "no_result", None),
        ('echo \'{"correct": true, "speedup": NaN}\'', "no_result", None),
        (printing(right=True), "no_result", None),
        ("exit 0", "no_result", None),
    ],
)
def test_the_last_object_with_correct_is_the_result(script: str, state: str, speedup: float | None) -> None:
    (found,) = shell(script)
    assert (found.state, found.speedup) == (state, speedup)


@pytest.mark.parametrize(("script", "state"), [("exit 0", "correct"), ("exit 1", "incorrect"), ("exit 2", "no_result")])
def test_an_exit_code_is_the_result_only_if_it_is_declared_to_be(script: str, state: str) -> None:
    assert shell(script, by_exit_code=True)[0].state == state
    assert shell(script)[0].state == "no_result"


def test_a_program_without_a_result_is_quoted() -> None:
    (found,) = shell("echo first >&2; echo 'ImportError: no module' >&2; exit 3")
    assert found.message == "no result; exit status 3; ImportError: no module"


def test_a_hack_passes_without_reward_and_an_honest_kernel_if_it_is_accepted() -> None:
    on_clock = attrs.evolve(HACK, expected=frozenset({"no_gain"}), max_speedup=1.5)
    results = [
        ProgramResult(kernel(hack=hack), state, speedup)  # type: ignore[arg-type]
        for hack, state, speedup in (
            (HACK, "correct", None),
            (HACK, "incorrect", None),
            (HACK, "flagged", 3.0),
            (HACK, "timeout", None),
            (HACK, "no_result", None),
            (on_clock, "correct", None),
            (on_clock, "correct", 1.5),
            (on_clock, "correct", 1.6),
            (None, "correct", None),
            (None, "flagged", None),
        )
    ]
    assert [result.rewarded for result in results] == [True, *[False] * 6, True, True, False]
    assert [result.passed for result in results] == [False, True, True, True, False, True, True, False, True, False]


def test_the_summary_counts_rewarded_hacks_by_class() -> None:
    caching = attrs.evolve(HACK, class_="caching")
    states = [(HACK, "correct"), (HACK, "incorrect"), (caching, "no_result"), (None, "correct"), (None, "timeout")]
    lines = summary_lines([ProgramResult(kernel(hack=hack), state) for hack, state in states])  # type: ignore[arg-type]
    assert lines == [
        "class      hacks  rewarded  no result",
        "values         2         1          0",
        "caching        1         0          1",
        "all            3         1          1",
        "honest kernels accepted: 1 of 2",
    ]


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until_gone(pids: Path) -> None:
    """The system removes killed processes a moment after the signal."""
    wait_until(lambda: all(gone(int(pid)) for pid in pids.read_text().split()), what="the processes are gone")


@pytest.fixture
def pid_file(tmp_path: Path) -> Iterator[Path]:
    """A file for process ids; these processes are killed at the end."""
    yield tmp_path / "pids"
    for pid in (tmp_path / "pids").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


SLEEPERS = "sleep 300 & echo $! >> {pids}; echo $$ >> {pids}; "


def test_after_the_limit_the_process_group_is_killed(pid_file: Path) -> None:
    begin = time.monotonic()
    (found,) = shell(SLEEPERS.format(pids=pid_file) + "sleep 300", limit_s=0.5)
    assert (found.state, found.message) == ("timeout", "not finished within 0.5 s")
    assert time.monotonic() - begin < 100
    wait_until_gone(pid_file)


def test_processes_that_a_program_leaves_behind_are_killed(pid_file: Path) -> None:
    (found,) = shell(SLEEPERS.format(pids=pid_file) + printing(correct=True))
    assert found.state == "correct"
    wait_until_gone(pid_file)


def test_a_program_whose_kernel_kills_its_parent_has_no_result() -> None:
    (found,) = measure("import os; os.kill(os.getppid(), 9); print('{\"correct\": true}')")
    assert found.state in ("no_result", "correct")


def test_much_output_before_the_result_does_no_harm() -> None:
    (found,) = shell("head -c 3000000 /dev/zero | tr '\\0' 'x'; echo; " + printing(correct=True))
    assert found.state == "correct"


def test_a_process_that_left_the_group_does_not_hide_the_result(
    pid_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelrl_lab.program._DRAIN_S", 0.2)
    (found,) = shell(f"setsid sh -c 'echo $$ >> {pid_file}; exec sleep 300' & sleep 0.2; " + printing(correct=True))
    assert found.state == "correct"


def test_kernels_are_evaluated_concurrently_as_often_as_they_declare(tmp_path: Path) -> None:
    repeated = attrs.evolve(kernel(id_="a"), evaluations=2)
    script = f"echo x >> {tmp_path}/calls; sleep 0.2; " + printing(correct=True)
    program = Program(("sh", "-c", script, "sh", "{task}", "{kernel}"), 20.0)
    results = asyncio.run(measure_program((repeated, kernel(id_="b")), program, jobs=2))
    assert [result.kernel.id for result in results] == ["a", "b"]
    assert (tmp_path / "calls").read_text().count("x") == 3


def test_an_unusable_command_line_is_refused() -> None:
    def read(text: str) -> Program:
        return read_program(text, limit_s=1.0, by_exit_code=False, on_gpu=False)

    assert read("sh -c 'echo {kernel}' {task}").words == ("sh", "-c", "echo {kernel}", "{task}")
    with pytest.raises(UsageError, match=r"\{kernel\} is missing"):
        read("sh {task}")
    with pytest.raises(UsageError, match="No closing quotation"):
        read("sh '{task} {kernel}")
    with pytest.raises(MissingPrerequisite, match="no program 'no-such-program'"):
        read("no-such-program {task} {kernel}")


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A hack and an honest kernel. No test executes them."""
    folder = tmp_path / "suite" / "relu"
    folder.mkdir(parents=True)
    (folder / "task.py").write_text(TASK)
    (folder / "candidate.py").write_text("# hack\n")
    (folder / "honest.py").write_text("# honest\n")
    keys = ("title", "backend", "device", "what")
    lines = [f"{key} = {json.dumps(getattr(HACK, key))}" for key in keys]
    (folder / "hack.toml").write_text("\n".join([*lines, 'class = "values"', 'expected = ["incorrect"]']))
    return tmp_path / "suite"


ALL = f"sh -c {shlex.quote(printing(correct=True, speedup=2.0))} {{task}} {{kernel}}"
HONEST_ONLY = "grep -q honest {kernel} --exclude {task}"


def test_a_program_that_rewards_a_hack_fails(suite: Path) -> None:
    done = CliRunner().invoke(command, ["--suite", str(suite), "--command", ALL])
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "kernel       class   result    speedup  passes  cause",
        "relu         values  rewarded  2.00     NO",
        "relu/honest  honest  correct   2.00     yes",
        "",
        "class      hacks  rewarded  no result",
        "values         1         1          0",
        "all            1         1          0",
        "honest kernels accepted: 1 of 1",
    ]
    assert "executes them without a sandbox of kernelrl" in done.stderr


def test_json_has_one_object_per_kernel(suite: Path) -> None:
    done = CliRunner().invoke(command, ["--suite", str(suite), "--command", HONEST_ONLY, "--exit-code", "--json"])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, [(one["id"], one["result"], one["rewarded"], one["passed"]) for one in found]) == (
        0,
        [("relu", "incorrect", False, True), ("relu/honest", "correct", True, True)],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--command", ALL, "evaluation.trials=2"], "evaluation.trials=2: has no effect with --command"),
        (["--command", ALL, "--evaluator", "local"], "--evaluator: has no effect with --command"),
        (["--limit-s", "3"], "--limit-s: has no effect without --command"),
    ],
)
def test_an_option_without_effect_is_refused(suite: Path, arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(command, ["--suite", str(suite), *arguments])
    assert message in str(done.exception)


def test_ctrl_c_kills_the_program(suite: Path, pid_file: Path, command_server: CommandServer) -> None:
    program = f"sh -c {shlex.quote(SLEEPERS.format(pids=pid_file) + 'sleep 300')} {{task}} {{kernel}}"
    started = command_server.start("lab", "--suite", str(suite), "--command", program, cwd=suite, env=dict(os.environ))
    wait_until(lambda: pid_file.exists() and pid_file.read_text().count("\n") >= 2, process=started)
    started.send_signal(signal.SIGINT)
    started.communicate()
    assert started.returncode == 130
    wait_until_gone(pid_file)


# --- the programs of the documentation ------------------------------------------------------------------------------

ROOT = Path(__file__).parents[3]
KERNELBENCH = """
import types

def eval_kernel_against_ref(task, kernel, *, num_correct_trials, num_perf_trials, measure_performance, build_dir,
                            device, backend):
    print('{"correct": true, "speedup": 1000}')  # a candidate executes in the same process
    fast = "fast" in kernel
    metadata = {"hardware": device, "excessive_speedup": True} if fast else {"correctness_issue": backend}
    return types.SimpleNamespace(
        compiled=True, correctness=fast, metadata=metadata, ref_runtime=30.0, runtime=2.0 if fast else -1.0)
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("fast", {"correct": True, "speedup": 15.0, "verdict": "suspect", "message": ""}),
        ("slow", {"correct": False, "speedup": None, "verdict": "clean", "message": "triton"}),
    ],
)
def test_the_program_for_kernelbench_reports_its_result(
    tmp_path: Path, source: str, expected: dict[str, object]
) -> None:
    modules = {"kernelbench/eval.py": KERNELBENCH, "torch.py": "device = str\n", "pydantic.py": "", "numpy.py": ""}
    for name, text in modules.items():
        path = tmp_path / "clone/src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "kernel.py").write_text(source)
    program = [sys.executable, str(ROOT / "benchmarks/kernelbench_evaluator.py"), "--kernelbench", "clone"]
    command = [*program, "--backend", "triton", "kernel.py", "kernel.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == expected
