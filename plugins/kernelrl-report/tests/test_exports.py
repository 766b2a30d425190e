"""Export of best kernels, of samples as a data set, and of weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_core.api.checkers import Verdict
from kernelrl_core.api.episodes import Extraction, SampleId
from kernelrl_core.api.errors import KernelRLError, MissingPrerequisite, UsageError
from kernelrl_core.api.results import Results, find_results, last_rows
from kernelrl_core.api.rewards import Turn
from kernelrl_core.api.runs import RunDir
from kernelrl_core.api.tasks import Outcome, Task
from kernelrl_report import dataset_export
from kernelrl_report.best_kernels import INDEX, write_best_kernels
from kernelrl_report.dataset_export import write_dataset
from kernelrl_testing.core import Credit, sample_row
from kernelrl_testing.values import make_candidate, make_evaluation, make_turn

RELU, SOFTMAX = Task("own/1/relu", "relu", level=1), Task("own/2/softmax", "softmax", level=2)


def kernel(task: Task, sample: str, source: str, speedup: float | None = 1.0, **fields: Any) -> Turn:
    evaluation = make_evaluation(Outcome.CORRECT, speedup=speedup)
    place = SampleId(*map(int, sample.split(".")))
    extraction = Extraction(make_candidate(source))
    return make_turn(id=place, task=task, evaluation=evaluation, extraction=extraction, **fields)


def make_run(
    path: Path, samples: Sequence[Turn], held_out: Sequence[Turn] = (), credit: Sequence[Mapping[str, Any]] = ()
) -> Results:
    path.mkdir()
    (path / "recipe.yaml").write_text("{}")
    (path / "provenance.json").write_text('{"kernelrl": "0.1"}')
    for name, rows in (
        ("samples", [sample_row(turn) for turn in samples]),
        ("eval_samples", [sample_row(turn) for turn in held_out]),
        ("credits", credit),
    ):
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Results(path, RunDir(path))


def folder(path: Path) -> Path:
    path.mkdir()
    return path


# --- rows ---------------------------------------------------------------------------------------------------------


def test_of_a_retried_turn_the_last_row_counts(tmp_path: Path) -> None:
    turns = [kernel(RELU, "0.0.0.0", "first"), kernel(RELU, "0.0.1.0", "b"), kernel(RELU, "0.0.0.0", "last")]
    rows = make_run(tmp_path / "run", turns).rows("train")
    assert [row["extraction"]["candidate"]["source"] for row in rows] == ["b", "last"]


def test_the_last_held_out_evaluation_is_that_of_the_highest_step(tmp_path: Path) -> None:
    held_out = [kernel(RELU, "0.0.0.0", "a"), kernel(RELU, "5.0.1.0", "c"), kernel(RELU, "5.0.0.0", "b")]
    assert [row["sample"] for row in last_rows(make_run(tmp_path / "run", [], held_out))] == ["5.0.0.0", "5.0.1.0"]


def test_a_run_without_a_held_out_evaluation_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no held-out evaluation") as refused:
        last_rows(make_run(tmp_path / "run", [kernel(RELU, "0.0.0.0", "a")]))
    assert "kernelrl eval" in refused.value.fix


def test_results_are_found_by_path_of_a_file_or_a_run(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [])
    (tmp_path / "result.json").write_text("{}")
    assert find_results(str(tmp_path / "run")).run is not None
    assert find_results(str(tmp_path / "result.json")).run is None


# --- best kernels -------------------------------------------------------------------------------------------------


def test_the_fastest_clean_kernel_of_each_task_is_written_below_its_id(tmp_path: Path) -> None:
    results = make_run(
        tmp_path / "run",
        [
            kernel(RELU, "0.0.0.0", "slow", 1.1),
            kernel(RELU, "0.0.1.0", "fast", 2.0),
            kernel(RELU, "0.0.2.0", "suspect", 9.0, verdict=Verdict.SUSPECT),
        ],
        [kernel(SOFTMAX, "0.0.0.0", "held out", 1.5)],
    )
    found = write_best_kernels(results, folder(tmp_path / "best"))
    assert (tmp_path / "best/own/1/relu.py").read_text() == "fast"
    assert (tmp_path / "best/own/2/softmax.py").read_text() == "held out"
    index = json.loads((tmp_path / "best" / INDEX).read_text())
    assert index["provenance"] == {"kernelrl": "0.1"}
    described = [
        [entry[key] for key in ("file", "verdict", "speedup", "purpose", "sample")] for entry in index["kernels"]
    ]
    assert described == [
        ["own/1/relu.py", "clean", 2.0, "train", "0.0.1.0"],
        ["own/2/softmax.py", "clean", 1.5, "eval", "0.0.0.0"],
    ]
    assert found.left_out == {"not among the best": 1, "not clean": 1}


def test_suspects_are_written_on_request(tmp_path: Path) -> None:
    results = make_run(tmp_path / "run", [kernel(RELU, "0.0.2.0", "suspect", 9.0, verdict=Verdict.SUSPECT)])
    write_best_kernels(results, folder(tmp_path / "best"), suspects=True)
    assert (tmp_path / "best/own/1/relu.py").read_text() == "suspect"


def test_a_task_id_never_leaves_the_folder(tmp_path: Path) -> None:
    strange = Task("../../x/.hidden", "x")
    write_best_kernels(make_run(tmp_path / "run", [kernel(strange, "0.0.0.0", "a")]), folder(tmp_path / "best"))
    written = [path.relative_to(tmp_path / "best").as_posix() for path in (tmp_path / "best").rglob("*.py")]
    assert written == ["_../_../x/_.hidden.py"]


def test_a_run_without_a_correct_kernel_is_refused_with_the_reasons(tmp_path: Path) -> None:
    wrong = make_turn(Outcome.INCORRECT, task=RELU)
    with pytest.raises(KernelRLError, match="no kernel to export: 1 not correct"):
        write_best_kernels(make_run(tmp_path / "run", [wrong]), folder(tmp_path / "best"))


# --- data set -----------------------------------------------------------------------------------------------------


def test_datasets_loads_both_splits(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    samples = [kernel(RELU, "0.0.0.0", "a", 1.5), make_turn(Outcome.FORMAT_ERROR, id=SampleId(0, 0, 1, 0), task=RELU)]
    results = make_run(
        tmp_path / "run", samples, [kernel(SOFTMAX, "0.0.0.0", "b")], [Credit(samples[0], 1.0, 0.5).row()]
    )
    assert write_dataset(results, folder(tmp_path / "set")) == {"train": 2, "held_out": 1}
    loaded = datasets.load_dataset(str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))
    first, second = loaded["train"]
    assert {key: first[key] for key in ("kernel", "outcome", "speedup", "advantage", "episode")} == {
        "kernel": "a",
        "outcome": "correct",
        "speedup": 1.5,
        "advantage": 0.5,
        "episode": 0,
    }
    assert (second["kernel"], second["advantage"], second["outcome"]) == (None, None, "format_error")
    assert loaded["held_out"]["task_id"][:] == ["own/2/softmax"]


def test_a_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    turn = attrs.evolve(kernel(RELU, "0.0.0.0", "x = '\ud800'"), feedback="\udcff")
    write_dataset(make_run(tmp_path / "run", [turn]), folder(tmp_path / "set"))
    (row,) = parquet.read_table(tmp_path / "set/data/train-00000-of-00001.parquet").to_pylist()
    assert (row["kernel"], row["feedback"]) == ("x = '?'", "?")


def test_rows_beyond_one_row_group_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(dataset_export, "_ROWS", 2)
    turns = [kernel(RELU, f"0.0.{episode}.0", "a") for episode in range(5)]
    assert write_dataset(make_run(tmp_path / "run", turns), folder(tmp_path / "set")) == {"train": 5}
    table = parquet.read_table(tmp_path / "set/data/train-00000-of-00001.parquet")
    assert table["episode"].to_pylist() == [0, 1, 2, 3, 4]


def test_a_run_without_samples_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(UsageError, match="no samples to export"):
        write_dataset(make_run(tmp_path / "run", []), folder(tmp_path / "set"))


def test_without_pyarrow_the_fix_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(dataset_export, "import_module", absent)
    with pytest.raises(MissingPrerequisite) as refused:
        write_dataset(make_run(tmp_path / "run", []), folder(tmp_path / "set"))
    assert refused.value.fix == "pip install 'kernelrl[parquet]'"
