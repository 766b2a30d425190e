"""A held-out evaluation in KernelBench's files. The expected analysis is written after KernelBench's own."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.api.checkers import Verdict
from kernelrl_core.api.episodes import SampleId
from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.evaluators import BuildStatus
from kernelrl_core.api.results import Results
from kernelrl_core.api.rewards import Turn
from kernelrl_core.api.tasks import Outcome, Task
from kernelrl_plugin_kernelbench.evaluation_files import Written, write_kernelbench_files
from kernelrl_plugin_kernelbench.kernel_names import KernelFile, parse_kernel_file, task_place
from kernelrl_testing.core import sample_row
from kernelrl_testing.values import make_evaluation, make_runtime, make_turn

RELU = Task("kernelbench/1/19", "relu", level=1, name="19_ReLU")
TANH = Task("kernelbench/1/22", "tanh", level=1, name="22_Tanh")
CONV = Task("kernelbench/2/1", "conv", level=2, name="1_Conv2D")


def turn(task: Task, episode: int = 0, number: int = 0, outcome: Outcome = Outcome.CORRECT, **fields: Any) -> Turn:
    index = [RELU, TANH, CONV].index(task)
    return make_turn(outcome, id=SampleId(4, index, episode, number), task=task, **fields)


def timed(task: Task, baseline_us: float, runtime_us: float, episode: int = 0, number: int = 0, **fields: Any) -> Turn:
    evaluation = make_evaluation(
        Outcome.CORRECT,
        baseline=make_runtime(baseline_us),
        runtime=make_runtime(runtime_us),
        speedup=baseline_us / runtime_us,
    )
    return turn(task, episode, number, evaluation=evaluation, **fields)


def export(directory: Path, *turns: Turn, level: int | None = None, **document: Any) -> Written:
    path = directory / "result.json"
    path.write_text(json.dumps({**document, "rows": [sample_row(turn) for turn in turns]}))
    (directory / "out").mkdir()
    return write_kernelbench_files(Results(path), directory / "out", level=level)


def read(directory: Path, name: str) -> Any:
    return json.loads((directory / "out" / name).read_text())


def test_names_of_kernel_files_are_those_of_kernelbench() -> None:
    assert KernelFile(1, 19, 2).name == "level_1_problem_19_sample_2_kernel.py"
    assert parse_kernel_file("level_1_problem_19_sample_2_kernel.py") == KernelFile(1, 19, 2)
    assert parse_kernel_file("level_1_problem_19_sample_2.py") is None


@pytest.mark.parametrize(
    ("task_id", "level", "place"),
    [
        ("kernelbench/1/19", 1, (1, 19)),
        ("directory/level2/7_Conv", 2, (2, 7)),
        ("starter/1/relu", 1, None),
        ("a/1x", 1, None),
        ("kernelbench/1/19", None, None),
    ],
)
def test_level_and_number_of_a_task(task_id: str, level: int | None, place: tuple[int, int] | None) -> None:
    assert task_place(task_id, level) == place


def test_baseline_divided_by_run_time_is_the_measured_speedup_of_every_sample(tmp_path: Path) -> None:
    export(tmp_path, timed(RELU, 3000, 1000), timed(RELU, 3300, 550, episode=1))
    baseline = read(tmp_path, "baseline.json")["level1"]["19_ReLU.py"]["mean"]
    first, second = read(tmp_path, "eval_results.json")["19"]
    assert baseline == 3.0
    assert (first["sample_id"], first["runtime"], first["runtime_stats"]["mean"]) == (0, 1.0, 1.0)
    assert (second["sample_id"], second["runtime_stats"]["mean"]) == (1, 0.55)
    assert math.isclose(baseline / second["runtime"], 6.0)


def test_a_kernel_that_is_not_correct_has_no_run_time(tmp_path: Path) -> None:
    failed = turn(TANH, outcome=Outcome.COMPILE_ERROR)
    wrong = turn(RELU, outcome=Outcome.INCORRECT, evaluation=make_evaluation(Outcome.INCORRECT))
    export(tmp_path, wrong, failed)
    found = read(tmp_path, "eval_results.json")
    assert [(found[n][0]["compiled"], found[n][0]["correctness"]) for n in ("19", "22")] == [
        (True, False),
        (False, False),
    ]
    assert {found[n][0]["runtime"] for n in ("19", "22")} == {-1.0}
    # Without an entry the analysis would exclude the task.
    assert set(read(tmp_path, "baseline.json")["level1"]) == {"19_ReLU.py", "22_Tanh.py"}


def test_an_episode_counts_with_its_fastest_correct_turn_as_measured(tmp_path: Path) -> None:
    slow = timed(RELU, 1000, 800, number=0)
    suspect = timed(RELU, 1000, 250, number=1, verdict=Verdict.SUSPECT)
    wrong = turn(RELU, number=2, outcome=Outcome.INCORRECT)
    export(tmp_path, slow, suspect, wrong)
    (sample,) = read(tmp_path, "eval_results.json")["19"]
    assert (sample["metadata"]["speedup"], sample["metadata"]["verdict"]) == (4.0, "suspect")


def test_kernel_files_have_the_sources_and_a_reply_without_a_kernel_has_none(tmp_path: Path) -> None:
    kernel = timed(RELU, 2, 1)
    export(tmp_path, kernel, turn(TANH, outcome=Outcome.FORMAT_ERROR))
    files = sorted(path.name for path in (tmp_path / "out").glob("*.py"))
    assert files == ["level_1_problem_19_sample_0_kernel.py"]
    assert kernel.candidate is not None
    assert (tmp_path / "out" / files[0]).read_text() == kernel.candidate.source
    assert len(read(tmp_path, "eval_results.json")["22"]) == 1


def test_pass_at_k_of_each_task_and_on_average(tmp_path: Path) -> None:
    samples = [timed(RELU, 2, 1), turn(RELU, 1, outcome=Outcome.INCORRECT)]
    others = [turn(TANH, episode, outcome=Outcome.INCORRECT) for episode in (0, 1)]
    export(tmp_path, *samples, *others, **{"pass@1": 0.25, "pass@2": 0.5, "pass@4": None, "pass@1_ci": [0, 1]})
    found = read(tmp_path, "pass_at_k_results.json")
    assert found["averages"] == {"avg_pass@1": 0.25, "avg_pass@2": 0.5}
    assert found["problems"]["19"] == {"total_samples": 2, "correct_samples": 1, "pass@1": 0.5, "pass@2": 1.0}
    assert found["metadata"]["total_evaluated_samples"] == 4


def test_a_task_with_a_correct_kernel_that_was_not_timed_has_no_baseline(tmp_path: Path) -> None:
    untimed = turn(TANH, evaluation=make_evaluation(Outcome.CORRECT, build=BuildStatus.BUILT, speedup=None))
    written = export(tmp_path, timed(RELU, 2, 1), untimed)
    assert set(read(tmp_path, "baseline.json")["level1"]) == {"19_ReLU.py"}
    assert read(tmp_path, "eval_results.json")["22"][0]["runtime"] == -1.0
    assert [note.partition(" ")[0] for note in written.notes] == ["1"]


def test_lost_episodes_and_other_tasks_are_counted(tmp_path: Path) -> None:
    lost = turn(RELU, 1, outcome=Outcome.INFRA_ERROR)
    written = export(tmp_path, timed(RELU, 2, 1), lost, timed(CONV, 2, 1), level=1)
    assert (written.tasks, written.samples) == (1, 1)
    assert [note.split(" ")[:2] for note in written.notes] == [["1", "episodes"], ["1", "episodes"]]


def test_several_levels_need_a_choice(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="levels 1, 2") as refused:
        export(tmp_path, timed(RELU, 2, 1), timed(CONV, 2, 1))
    assert refused.value.fix == "add --level"


def test_a_level_without_a_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--level 3: .* level 1 only"):
        export(tmp_path, timed(RELU, 2, 1), level=3)


def test_tasks_without_a_number_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no task has a level and a number"):
        export(tmp_path, make_turn(task=Task("own/relu", "relu", level=1)))
