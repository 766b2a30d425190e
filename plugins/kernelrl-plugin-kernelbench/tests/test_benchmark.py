"""KernelBench's tasks from a clone and from a fake hub."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError
from kernelrl_plugin_kernelbench.benchmark import KernelBenchTasks
from kernelrl_plugin_kernelbench.config import FractionHoldout, KernelBenchConfig, LevelNumbers


def ids(source: KernelBenchTasks, split: str) -> list[str]:
    return [task.id for task in source.tasks(split)]


def test_tasks_are_sorted_by_level_and_number(clone: Path) -> None:
    source = KernelBenchTasks(KernelBenchConfig(root=clone, levels=(2, 1), holdout="none"))
    tasks = source.tasks("train")
    expected = [f"kernelbench/1/{n}" for n in range(1, 21)] + [f"kernelbench/2/{n}" for n in range(1, 101)]
    assert [task.id for task in tasks] == expected
    assert (tasks[18].name, tasks[18].level) == ("19_Scale_by_19", 1)
    assert source.splits() == ("train",)


def test_root_may_be_the_inner_folder_of_a_clone(clone: Path) -> None:
    source = KernelBenchTasks(KernelBenchConfig(root=clone / "KernelBench", levels=(3,), holdout="none"))
    assert len(source.tasks("train")) == 5


def test_start_and_end_are_inclusive_and_clamped(clone: Path) -> None:
    config = KernelBenchConfig(root=clone, levels=(1, 3), start=4, end=6, holdout="none")
    assert ids(KernelBenchTasks(config), "train") == [f"kernelbench/{p}" for p in ("1/4", "1/5", "1/6", "3/4", "3/5")]


def test_numbers_select_tasks_by_level(clone: Path) -> None:
    config = KernelBenchConfig(
        root=clone, levels=(1, 2), numbers=LevelNumbers(level1=(7, 2), level2=(50,)), holdout="none"
    )
    assert ids(KernelBenchTasks(config), "train") == ["kernelbench/1/2", "kernelbench/1/7", "kernelbench/2/50"]


def test_unknown_numbers_are_all_listed(clone: Path) -> None:
    config = KernelBenchConfig(
        root=clone, levels=(1,), numbers=LevelNumbers(level1=(1, 77)), holdout=LevelNumbers(level1=(88,), level2=(1,))
    )
    with pytest.raises(UsageError) as caught:
        KernelBenchTasks(config).tasks("train")
    assert caught.value.message.splitlines() == [
        "kernelbench: numbers: level 1 has no task 77",
        "kernelbench: holdout: level 1 has no task 88",
        "kernelbench: holdout: level 2 is not selected (levels: 1)",
    ]


def test_the_hold_out_of_kevin(clone: Path) -> None:
    source = KernelBenchTasks(KernelBenchConfig(root=clone, levels=(1, 2), holdout="kevin"))
    assert ids(source, "held_out") == [f"kernelbench/1/{n}" for n in (3, 10)] + [
        f"kernelbench/2/{n}" for n in range(10, 101, 10)
    ]


def test_a_share_is_held_out_of_every_level(clone: Path) -> None:
    source = KernelBenchTasks(KernelBenchConfig(root=clone, levels=(1, 2, 3)))
    assert [sum(task.level == level for task in source.tasks("held_out")) for level in (1, 2, 3)] == [2, 10, 1]
    other = KernelBenchTasks(KernelBenchConfig(root=clone, levels=(1, 2, 3), holdout=FractionHoldout(0.1, seed=1)))
    assert ids(other, "held_out") != ids(source, "held_out")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    holdout=st.one_of(
        st.just("kevin"),
        st.builds(FractionHoldout, st.floats(0, 1), st.integers(0, 9)),
        st.builds(LevelNumbers, level1=st.lists(st.integers(1, 20)).map(tuple)),
    ),
    end=st.none() | st.integers(1, 30),
)
def test_splits_are_disjoint_complete_and_deterministic(clone: Path, holdout: object, end: int | None) -> None:
    config = KernelBenchConfig(root=clone, levels=(1, 2), end=end, holdout=holdout)
    source, again = KernelBenchTasks(config), KernelBenchTasks(config)
    parts = {split: set(ids(source, split)) for split in source.splits()}
    assert sum(map(len, parts.values())) == len(set.union(*parts.values())) == min(end or 20, 20) + (end or 100)
    assert source.manifest() == again.manifest()


def test_a_split_without_tasks_is_an_error_with_a_fix(clone: Path) -> None:
    with pytest.raises(UsageError, match="no split 'held_out'") as caught:
        KernelBenchTasks(KernelBenchConfig(root=clone, holdout="none")).tasks("held_out")
    assert "holdout" in caught.value.fix


def test_the_manifest_has_the_commit_and_content_hashes(clone: Path) -> None:
    refs = clone / ".git" / "refs" / "heads"
    refs.mkdir(parents=True)
    (clone / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (refs / "main").write_text("a" * 40 + "\n")
    manifest = KernelBenchTasks(KernelBenchConfig(root=clone, levels=(3,))).manifest()
    assert manifest["commit"] == "a" * 40
    assert manifest["holdout"] == {"fraction": 0.1, "seed": 0}
    (refs / "main").unlink()
    (clone / ".git" / "packed-refs").write_text(f"# pack-refs\n{'b' * 40} refs/heads/main\n")
    source = KernelBenchTasks(KernelBenchConfig(root=clone, levels=(3,)))
    assert source.manifest()["commit"] == "b" * 40
    hashes = {id_: sha for split in source.manifest()["tasks"].values() for id_, sha in split.items()}
    assert hashes == {task.id: task.sha256 for split in source.splits() for task in source.tasks(split)}
    assert len(hashes) == 5


def test_a_clone_is_found_by_environment_variable_and_beside_the_working_directory(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("KERNELBENCH_ROOT", str(clone))
    assert KernelBenchTasks(KernelBenchConfig(levels=(3,))).splits() == ("train", "held_out")
    monkeypatch.delenv("KERNELBENCH_ROOT")
    (tmp_path / "KernelBench").symlink_to(clone)
    assert KernelBenchTasks(KernelBenchConfig(levels=(3,))).manifest()["searched"].endswith("KernelBench/KernelBench")


def test_a_missing_clone_is_a_prerequisite_with_the_clone_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    with pytest.raises(MissingPrerequisite) as caught:
        KernelBenchTasks(KernelBenchConfig()).tasks("train")
    assert caught.value.fix == "git clone https://github.com/ScalingIntelligence/KernelBench"
    with pytest.raises(MissingPrerequisite, match="nowhere"):
        KernelBenchTasks(KernelBenchConfig(root=tmp_path / "nowhere")).tasks("train")


def test_a_missing_level_and_a_file_without_a_number_are_listed(clone: Path) -> None:
    (clone / "KernelBench" / "level3" / "helper.py").write_text("")
    with pytest.raises(UsageError) as caught:
        KernelBenchTasks(KernelBenchConfig(root=clone, levels=(3, 4))).tasks("train")
    assert "helper.py" in caught.value.message
    assert "has no level 4" in caught.value.message


def hub(monkeypatch: pytest.MonkeyPatch, load) -> None:
    module = types.ModuleType("datasets")
    module.load_dataset = load
    monkeypatch.setitem(sys.modules, "datasets", module)


def test_without_a_clone_the_hub_is_read_at_its_revision(
    tmp_path: Path, task_source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    requested = []

    def load(name, subset, split, revision):
        requested.append((name, split, revision))
        return [{"code": task_source(n), "level": 1, "name": f"{n}_Scale", "problem_id": n} for n in (1, 2)]

    hub(monkeypatch, load)
    source = KernelBenchTasks(KernelBenchConfig(revision="c0ffee", holdout="none"))
    assert ids(source, "train") == ["kernelbench/1/1", "kernelbench/1/2"]
    assert requested == [("ScalingIntelligence/KernelBench", "level_1", "c0ffee")]
    assert source.manifest()["revision"] == "c0ffee"


def test_an_unreachable_hub_is_an_infrastructure_error_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*args, **kwargs):
        raise ConnectionError("no route to host")

    hub(monkeypatch, load)
    with pytest.raises(InfrastructureError, match="cannot be reached") as caught:
        KernelBenchTasks(KernelBenchConfig(source="hub", revision="c0ffee")).tasks("train")
    assert "cache" in caught.value.fix


def test_the_hub_needs_a_revision() -> None:
    assert "revision" in next(iter(KernelBenchConfig(source="hub").problems()))
