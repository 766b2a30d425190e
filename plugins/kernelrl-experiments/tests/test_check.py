"""`kernelrl check` with a plugin of fakes: several kernels, folders, suites, the cache, changes of files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from kernelrl_command_server import Command, CommandServer

from kernelrl_core.environment.checked_kernels import CheckedKernel
from kernelrl_core.environment.turn_text import turn_lines
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.evaluation_spec import read_evaluation_spec
from kernelrl_core.types import Outcome, Turn, Verdict
from kernelrl_experiments.check.command import _exit_code, _junit_case, _table
from kernelrl_experiments.check.junit import JunitCase, write_junit
from kernelrl_experiments.check.results import CheckResult, KernelJob
from kernelrl_testing.values import make_evaluation, make_turn
from kernelrl_testing.waiting import DEADLINE_S, wait_until

FAKES = Path(__file__).parents[3] / "tests/fakes"
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
    return lambda *words: command_server.start("check", *words, cwd=tmp_path, env=environment)


@pytest.fixture
def check(start: Callable[..., Command]) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return start(TASK, *arguments, *FAKE).result()

    return run


def test_a_folder_gives_one_block_per_kernel_and_a_table(check: Run) -> None:
    done = check("kernels")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == ["kernels/bad.py:", "incorrect  fake/train/0"]
    assert done.stdout.splitlines()[-3:] == [
        "kernels/bad.py   incorrect  clean",
        "kernels/good.py  correct    clean  speedup 1.50",
        "1 of 2 correct",
    ]


def test_files_of_a_folder_that_are_skipped_are_counted_with_the_reason(check: Run, tmp_path: Path) -> None:
    assert check("kernels").stderr == "kernels: skipped 1 entry: 1 with a name that begins with _ or .\n"
    (tmp_path / "kernels/reply.txt").write_text("")
    (tmp_path / "kernels/more").mkdir()
    reasons = "1 without the suffix of a kernel, 1 with a name that begins with _ or ., 1 in the form of a folder"
    assert check("kernels", "--json").stderr == f"kernels: skipped 3 entries: {reasons}\n"


def test_json_has_one_object_per_line_in_the_order_of_the_arguments(check: Run) -> None:
    done = check("kernels/good.py", "kernels/bad.py", "kernels/good.py", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["kernel"], one["outcome"]) for one in found] == [
        ("kernels/good.py", "correct"),
        ("kernels/bad.py", "incorrect"),
    ]
    assert all("mismatch" in one for one in found)
    assert check("kernels/good.py", "--json").returncode == 0


INLINE = """
from torch.utils.cpp_extension import load_inline

ext = load_inline(name="e", cpp_sources="torch::Tensor run(torch::Tensor x) { return x; }", functions=["run"])
"""


@pytest.mark.parametrize(
    ("more", "words", "backend"),
    [(INLINE, (), "cpp"), ("", (), "triton"), (INLINE, ("-b", "cuda"), "cuda")],
    ids=["found in the source", "default", "stated"],
)
def test_the_backend_is_that_of_the_source_if_none_is_stated(
    start: Callable[..., Command], tmp_path: Path, more: str, words: tuple[str, ...], backend: str
) -> None:
    (tmp_path / "kernel.py").write_text(KERNEL.format(value="right") + more)
    done = start(TASK, "kernel.py", "-e", "fake", "checkers=null", "forbid=[]", "--json", *words).result()
    assert json.loads(done.stdout)["backend"] == backend


def test_a_task_of_others_is_refused_by_an_evaluator_that_does_not_confine_it(check: Run) -> None:
    done = check("kernels/good.py", "--confine")
    assert done.returncode == 2
    assert "does not confine tasks of others" in done.stderr


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


ELSEWHERE_WRONG = """tasks: {use: nowhere}
policy: {use: tinkre}
retriever: {use: bm25, index: ./nowhere}
rewards: {speed: {use: fake, weight: -1}}
train: {sets: 3}
backend: {use: fake}
evaluator: {use: fake}
evaluation: {timing: true, trials: 2}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        (tmp_path / "r.yaml").write_text(text)
        return "r.yaml"

    return write


def test_a_recipe_is_read_as_far_as_a_check_needs_it(check: Run, recipe: Callable[[str], str]) -> None:
    done = check("kernels/good.py", "-r", recipe(ELSEWHERE_WRONG))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("correct")


def test_a_mistake_in_the_evaluation_keys_of_a_recipe_is_reported(check: Run, recipe: Callable[[str], str]) -> None:
    done = check("kernels/good.py", "-r", recipe(f"{ELSEWHERE_WRONG}verfy: {{}}\n".replace("trials: 2", "trails: 2")))
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "kernelrl: r.yaml:8: evaluation.trails: unknown key 'trails'; did you mean 'trials'?",
        "kernelrl: r.yaml:9: verfy: unknown key 'verfy'; did you mean 'verify'?",
    ]


def test_a_contradiction_between_evaluation_keys_is_reported(check: Run) -> None:
    done = check("kernels/good.py", "evaluation.min_precision=tf32", "evaluation.precision=bf16")
    assert done.returncode == 2
    assert "evaluation.min_precision: errors are compared with float64 only if" in done.stderr


def test_a_key_that_a_check_does_not_read_is_refused(check: Run, recipe: Callable[[str], str]) -> None:
    done = check("kernels/good.py", "-r", recipe(ELSEWHERE_WRONG), "train.steps=1")
    assert done.returncode == 2
    assert done.stderr.startswith("kernelrl: command line: train: has no effect here; known: backend, evaluator")


def scores(done: subprocess.CompletedProcess[str]) -> list[float | None]:
    found = [json.loads(line)["score"] for line in done.stdout.splitlines()]
    return [one and one["total"] for one in found]


def test_the_score_is_that_of_the_rewards_of_a_recipe(check: Run, recipe: Callable[[str], str]) -> None:
    given = recipe("backend: {use: fake}\nevaluator: {use: fake}\nrewards: {right: {use: fake, weight: 0.7}}\n")
    assert scores(check("kernels/good.py", "kernels/bad.py", "-r", given, "--json")) == [0.7, 0.0]
    assert scores(check("kernels/good.py", "-r", given, "rewards.right.weight=0.2", "--json")) == [0.2]
    assert scores(check("kernels/good.py", "--json")) == [None]


@pytest.mark.parametrize("setting", ["evaluation.timing=true", "evaluation={timing: true}"])
def test_no_timing_contradicts_timing(check: Run, recipe: Callable[[str], str], setting: str) -> None:
    done = check("kernels/good.py", "-r", recipe(ELSEWHERE_WRONG), "--no-timing", setting)
    assert done.returncode == 2
    assert done.stderr.startswith("kernelrl: --no-timing contradicts evaluation.timing=true")


@pytest.mark.parametrize("switch", ["--no-timing", "evaluation.timing=false"])
def test_the_switch_that_turned_timing_off_is_named(check: Run, recipe: Callable[[str], str], switch: str) -> None:
    found = json.loads(
        check("kernels/good.py", "-r", recipe(ELSEWHERE_WRONG), switch, "evaluator.untimed=true", "--json").stdout
    )
    assert found["reasons"]["speedup"] == f"timing is turned off by {switch}"


def test_a_failing_checker_is_one_line_and_its_traceback_is_printed_on_request(start: Callable[..., Command]) -> None:
    words = (TASK, "kernels/good.py", "-b", "fake", "-e", "fake", "checkers={own: {use: fake}}", "forbid=[]")
    out, err = start(*words).communicate(timeout=DEADLINE_S)
    evidence = "checkers.own failed: Checker of kernelrl_fake: RuntimeError: planted in the checker"
    (line,) = [line for line in (out + err).splitlines() if "planted" in line]
    assert re.fullmatch(
        rf"finding   checker_failed \(note, own\): {re.escape(evidence)} \(\S+kernelrl_fake.py:\d+\)", line
    )
    assert err == ""
    out, err = start(*words, "--debug").communicate(timeout=DEADLINE_S)
    assert "Traceback" in err
    assert 'raise RuntimeError("planted in the checker")' in err


def test_a_changed_kernel_is_evaluated_again(start: Callable[..., Command], tmp_path: Path) -> None:
    process = start(TASK, "kernels/bad.py", "--watch", "--json", *FAKE)
    wait_until(lambda: "watching for changes" in process.so_far()[1], process=process)
    (tmp_path / "kernels/bad.py").write_text(KERNEL.format(value="right") + "# changed\n")
    wait_until(lambda: process.so_far()[0].count("\n") == 2, process=process)
    assert [json.loads(line)["outcome"] for line in process.so_far()[0].splitlines()] == ["incorrect", "correct"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130


def test_an_override_may_precede_the_task(tmp_path: Path, command_server: CommandServer) -> None:
    (tmp_path / "k.py").write_text(KERNEL.format(value="right"))
    words = ("check", "evaluation.trials=2", TASK, "k.py", *FAKE)
    process = command_server.start(*words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(FAKES)})
    assert process.communicate(timeout=DEADLINE_S)[1] == ""
    assert process.returncode == 0


def result(turn: Turn) -> CheckResult:
    job = KernelJob("k.py", turn.task, "", "fake")
    spec = read_evaluation_spec({"backend": {"use": "cpp"}, "evaluator": {"use": "local"}}, registry=registry())
    return CheckResult(job, spec, "", CheckedKernel("k.py", turn, 1.0))


def test_a_suspect_fails_unless_the_check_is_lenient() -> None:
    suspect = result(make_turn(Outcome.CORRECT, verdict=Verdict.SUSPECT))
    clean = result(make_turn(Outcome.CORRECT))
    assert [_exit_code([clean, suspect], lenient=lenient) for lenient in (False, True)] == [1, 0]
    assert _exit_code([clean], lenient=False) == 0


def test_the_first_line_and_the_table_count_a_suspect() -> None:
    suspect = make_turn(Outcome.CORRECT, verdict=Verdict.SUSPECT)
    assert turn_lines(suspect)[0] == "suspect; correct in the trials  task"
    assert _table([result(suspect), result(make_turn(Outcome.CORRECT))])[-1] == "2 of 2 correct, 1 of them suspect"


# --- suites ---------------------------------------------------------------------------------------------------------

REFERENCE = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


@pytest.fixture
def suite(start: Callable[..., Command], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Write a suite and check it."""

    def run(*arguments: str, **kernels: str) -> subprocess.CompletedProcess[str]:
        for name, value in kernels.items():
            for folder, text in (("tasks", REFERENCE), ("kernels", KERNEL.format(value=value))):
                (tmp_path / "suite" / folder).mkdir(parents=True, exist_ok=True)
                (tmp_path / "suite" / folder / f"{name}.py").write_text(text)
        return start("--suite", "suite", *arguments, *FAKE).result()

    return run


def test_a_suite_gives_one_row_for_each_kernel_with_its_task(suite: Run) -> None:
    done = suite(first="right", second="wrong")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-3:] == [
        "suite/kernels/first.py   first   correct    clean  speedup 1.50",
        "suite/kernels/second.py  second  incorrect  clean",
        "1 of 2 correct",
    ]
    assert suite("--json", second="right").returncode == 0


def test_a_suite_with_mistakes_is_refused_with_a_line_for_each_and_nothing_is_evaluated(
    suite: Run, tmp_path: Path
) -> None:
    (tmp_path / "suite/kernels").mkdir(parents=True)
    (tmp_path / "suite/kernels/others.py").write_text("")
    done = suite(first="right", broken="right")
    (tmp_path / "suite/tasks/broken.py").write_text("x = 1")
    done = suite(first="right")
    assert (done.returncode, done.stdout) == (2, "")
    first, second, *_ = done.stderr.splitlines()
    assert first.startswith("kernelrl: suite/tasks/broken.py:1: not a task: defines no Model")
    assert second == "kernelrl: suite/kernels/others.py: no task suite/tasks/others.py; known: broken, first"


def test_results_are_written_for_a_ci_system(suite: Run, tmp_path: Path) -> None:
    suite("--junit", "out/results.xml", first="right", second="wrong")
    (found,) = ElementTree.parse(tmp_path / "out/results.xml").getroot()
    assert (found.get("tests"), found.get("failures"), found.get("errors")) == ("2", "1", "0")
    first, second = found
    assert (first.get("classname"), first.get("name"), len(first)) == ("first", "suite/kernels/first.py", 0)
    assert [(one.tag, one.get("message")) for one in second] == [("failure", "incorrect")]


def test_a_kernel_that_was_only_built_is_skipped_and_a_lost_one_is_an_error() -> None:
    built = make_evaluation(Outcome.INFRA_ERROR, checked="device code compiled")
    for evaluation, kind in ((built, "skipped"), (None, "error")):
        turn = make_turn(Outcome.INFRA_ERROR, evaluation=evaluation)
        assert _junit_case(result(turn), lenient=False).problem == kind


def test_a_message_with_characters_that_xml_has_not_is_written(tmp_path: Path) -> None:
    write_junit(tmp_path / "r.xml", "suite", [JunitCase("task", "k.py", 1.0, "failure", "no", "\x1b[31mred\x00")])
    assert "\ufffd[31mred\ufffd" in (ElementTree.parse(tmp_path / "r.xml").getroot().findtext(".//failure") or "")


def test_a_suite_and_a_task_exclude_each_other(start: Callable[..., Command]) -> None:
    _, err = start("--suite", "suite", TASK).communicate(timeout=DEADLINE_S)
    assert err.startswith(f"kernelrl: {TASK}: --suite names tasks and kernels")
