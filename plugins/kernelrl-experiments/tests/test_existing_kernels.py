"""Existing kernels: which task each belongs to, and which are refused or excluded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.errors import LookupFailed, UsageError
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.rows import sample_row
from kernelrl_core.types import Extraction, Outcome, SampleId, Task
from kernelrl_experiments.existing_kernels import ExistingKernels, read_existing
from kernelrl_testing.fakes import FakeTasks
from kernelrl_testing.values import make_turn

TASKS = [
    Task("bench/1/3", "reference 3", "train", level=1, name="3_Add"),
    Task("bench/1/19", "reference 19", "train", level=1, name="19_ReLU"),
    Task("bench/2/3", "reference 2 3", "held_out", level=2, name="3_Conv"),
    Task("own/softmax", "reference softmax", "held_out", level=2, name="softmax"),
]


class NumberedTasks(FakeTasks):
    """Knows files of a tool by number and sample, such as `19-2.py`."""

    def task_of_file(self, name: str) -> tuple[str, int] | None:
        number, separator, sample = name.removesuffix(".py").partition("-")
        if not separator:
            return None
        if number not in ("3", "19"):
            raise LookupFailed(f"there is no task {number}")
        return f"bench/1/{number}", int(sample)


def read(path: Path, split: str | None = None) -> ExistingKernels:
    return read_existing(str(path), NumberedTasks(TASKS), split, registry())


def folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"# {name}\n")
    return path


def placed(found: ExistingKernels) -> list[tuple[str, int, int]]:
    return [(found.tasks[k.id.task_index].id, k.id.attempt, k.id.turn) for k in found.kernels]


def result(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"rows": rows}))
    return path


def test_files_of_another_tool_belong_to_the_task_that_the_source_names(tmp_path: Path) -> None:
    names = ("19-0.py", "19-2.py")
    found = read(folder(tmp_path, *names, "3_Conv.py", "results.json"))
    assert placed(found) == [("bench/1/19", 0, 0), ("bench/1/19", 2, 0), ("bench/2/3", 0, 0)]
    assert [kernel.text for kernel in found.kernels][:2] == [f"# {name}\n" for name in names]
    assert (found.splits, found.samples) == ("train, held_out", 2)


@pytest.mark.parametrize("name", ["own/softmax.py", "softmax.py", "3_Conv.py", "bench/1/3.py", "deeper/19_ReLU.py"])
def test_other_files_are_matched_by_id_last_part_or_name(tmp_path: Path, name: str) -> None:
    tasks = {"softmax": "own/softmax", "3_Conv": "bench/2/3", "3": "bench/1/3", "19_ReLU": "bench/1/19"}
    assert placed(read(folder(tmp_path, name))) == [(tasks[Path(name).stem], 0, 0)]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("softmx.py",), "fits no task; did you mean 'softmax'?"),
        (("4-0.py", "5-0.py"), "5-0.py fits no task; there is no task 5"),
        (("3.py",), "fits 2 tasks: bench/1/3, bench/2/3"),
        (("softmax.py", "own/softmax.py"), "are both for task own/softmax"),
        (("notes.txt",), "no file *.py"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?").replace("*", r"\*")):
        read(folder(tmp_path, *names))


def test_a_path_that_does_not_exist_is_refused_with_the_nearest_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"no such directory, file or run$"):
        read(tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "runs" / "demo", "recipe.yaml")
    with pytest.raises(UsageError, match="no such directory, file or run; did you mean run 'demo'"):
        read(Path("dmo"))


def test_a_split_excludes_kernels_of_others_and_counts_tasks_without_one(tmp_path: Path) -> None:
    found = read(folder(tmp_path, "softmax.py", "3_Add.py"), "held_out")
    assert placed(found) == [("own/softmax", 0, 0)]
    assert found.notes == (
        "1 tasks with kernels are not in split 'held_out'",
        "1 of 2 tasks of split 'held_out' have no kernel and do not count",
    )


def test_every_turn_of_an_earlier_result_is_taken(tmp_path: Path) -> None:
    rows = [sample_row(make_turn(id=SampleId(7, 0, 1, turn), task=TASKS[2])) for turn in (0, 1)]
    found = read(result(tmp_path / "out.json", rows))
    assert placed(found) == [("bench/2/3", 1, 0), ("bench/2/3", 1, 1)]
    assert found.kernels[0].text == rows[0]["extraction"]["candidate"]["source"]


def test_a_turn_without_a_candidate_keeps_its_reason(tmp_path: Path) -> None:
    reason = Extraction(None, "truncated", "The reply was cut off.")
    turn = make_turn(task=TASKS[0], extraction=reason, evaluation=None, outcome=Outcome.FORMAT_ERROR)
    (kernel,) = read(result(tmp_path / "out.json", [sample_row(turn)])).kernels
    assert kernel.extraction == reason


def test_tasks_that_the_recipe_lacks_or_changed_are_counted(tmp_path: Path) -> None:
    others = [Task("gone/1", "x"), Task("own/softmax", "another reference"), TASKS[0]]
    rows = [sample_row(make_turn(id=SampleId(0, index, 0, 0), task=task)) for index, task in enumerate(others)]
    found = read(result(tmp_path / "out.json", rows))
    assert [task.id for task in found.tasks] == ["bench/1/3", "own/softmax"]
    assert [note.partition(" ")[0] for note in found.notes] == ["1", "1"]


def test_a_result_without_a_common_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no kernel is for a task of the recipe"):
        read(result(tmp_path / "out.json", [sample_row(make_turn(task=Task("gone/1", "x")))]))


@pytest.mark.parametrize("text", ["{}", "[]", "{", '{"rows": [1]}'])
def test_another_file_is_no_result(tmp_path: Path, text: str) -> None:
    (tmp_path / "out.json").write_text(text)
    with pytest.raises(UsageError, match=r"out\.json: no"):
        read(tmp_path / "out.json")


def test_the_evaluations_of_several_checkpoints_are_no_single_result(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text('{"evaluations": [{"rows": []}, {"rows": []}]}')
    with pytest.raises(UsageError, match="several checkpoints"):
        read(tmp_path / "out.json")
