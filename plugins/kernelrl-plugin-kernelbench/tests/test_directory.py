"""Tasks from files below a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelrl_core.api.errors import LookupFailed, UsageError
from kernelrl_plugin_kernelbench.config import DirectoryConfig, FractionHoldout, NamedHoldout
from kernelrl_plugin_kernelbench.directory import DirectoryTasks


@pytest.fixture
def folder(tmp_path: Path, task_source) -> Path:
    for name in ("level1/relu", "level1/gelu", "level_2/softmax", "other/deep/scan", "plain"):
        path = tmp_path / "tasks" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(task_source(len(name)))
    (tmp_path / "tasks" / "__init__.py").touch()
    return tmp_path / "tasks"


def test_files_become_tasks_with_the_level_of_their_folder(folder: Path) -> None:
    tasks = DirectoryTasks(DirectoryConfig(folder)).tasks("train")
    assert {task.id: task.level for task in tasks} == {
        "directory/level1/relu": 1,
        "directory/level1/gelu": 1,
        "directory/level_2/softmax": 2,
        "directory/other/deep/scan": None,
        "directory/plain": None,
    }


def test_a_glob_selects_files(folder: Path) -> None:
    source = DirectoryTasks(DirectoryConfig(folder, glob="level1/*.py"))
    assert [task.name for task in source.tasks("train")] == ["gelu", "relu"]


def test_names_and_patterns_are_held_out(folder: Path) -> None:
    source = DirectoryTasks(DirectoryConfig(folder, holdout=NamedHoldout(("softmax", "level1/g*"))))
    assert {task.name for task in source.tasks("held_out")} == {"softmax", "gelu"}
    assert {task.name for task in source.tasks("train")} == {"relu", "scan", "plain"}
    assert {task.split for task in source.tasks("held_out")} == {"held_out"}


def test_an_unmatched_held_out_name_suggests_the_nearest(folder: Path) -> None:
    with pytest.raises(UsageError, match="no task matches 'sofmax'; did you mean 'softmax'"):
        DirectoryTasks(DirectoryConfig(folder, holdout=NamedHoldout(("sofmax",)))).splits()


def test_a_share_holds_out_one_task_of_a_level_that_has_two(folder: Path) -> None:
    source = DirectoryTasks(DirectoryConfig(folder, holdout=FractionHoldout(0.1)))
    assert [task.level for task in source.tasks("held_out")] == [1, None]


def test_all_files_that_are_not_tasks_are_listed(folder: Path) -> None:
    (folder / "broken.py").write_text("def get_inputs(:\n")
    (folder / "half.py").write_text("class Model: ...\n")
    with pytest.raises(UsageError) as caught:
        DirectoryTasks(DirectoryConfig(folder)).tasks("train")
    first, second = caught.value.message.splitlines()
    assert first.startswith(f"{folder}/broken.py:1: not Python")
    assert second == f"{folder}/half.py:1: not a task: defines no get_inputs or get_init_inputs at module level"


def test_at_most_20_problems_are_listed(folder: Path) -> None:
    for number in range(25):
        (folder / f"bad{number}.py").write_text("")
    with pytest.raises(UsageError) as caught:
        DirectoryTasks(DirectoryConfig(folder)).tasks("train")
    assert len(caught.value.message.splitlines()) == 21
    assert caught.value.message.endswith("… and 5 more")


def test_a_binary_file_is_refused(folder: Path) -> None:
    (folder / "junk.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"junk\.py: not a text file"):
        DirectoryTasks(DirectoryConfig(folder)).tasks("train")


@pytest.mark.parametrize("glob", ["*.txt", "nothing/*.py"])
def test_an_empty_set_is_refused(folder: Path, glob: str) -> None:
    with pytest.raises(UsageError, match="no task was found"):
        DirectoryTasks(DirectoryConfig(folder, glob=glob)).tasks("train")


@pytest.mark.parametrize("glob", ["/*.py", "", "a**b/*.py"])
def test_an_invalid_glob_is_refused(folder: Path, glob: str) -> None:
    with pytest.raises(UsageError):
        DirectoryTasks(DirectoryConfig(folder, glob=glob)).tasks("train")


def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        DirectoryTasks(DirectoryConfig(tmp_path / "nowhere")).splits()


def test_kernel_files_of_kernelbench_belong_to_the_task_of_their_level_and_number(folder: Path, task_source) -> None:
    for name in ("level1/19_ReLU", "level_2/3_Conv"):
        (folder / f"{name}.py").write_text(task_source(len(name)))
    source = DirectoryTasks(DirectoryConfig(folder, holdout=NamedHoldout(("level_2/*",))))
    assert source.task_of_file("level_1_problem_19_sample_2_kernel.py") == ("directory/level1/19_ReLU", 2)
    assert source.task_of_file("level_2_problem_3_sample_0_kernel.py") == ("directory/level_2/3_Conv", 0)
    assert source.task_of_file("19_ReLU.py") is None
    with pytest.raises(LookupFailed, match="no task 1 of level 3; it has levels 1, 2"):
        source.task_of_file("level_3_problem_1_sample_0_kernel.py")


def test_tasks_without_numbers_have_no_kernel_files_of_kernelbench(folder: Path) -> None:
    with pytest.raises(LookupFailed, match="its tasks are not numbered"):
        DirectoryTasks(DirectoryConfig(folder)).task_of_file("level_1_problem_19_sample_2_kernel.py")
