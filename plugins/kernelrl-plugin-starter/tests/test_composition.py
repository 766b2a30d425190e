"""Tasks by composition: the grammar, its split, and the commands. Their kernels are judged in test_tasks.py."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.sources import NearDuplicates, nearly_equal
from kernelrl_core.api.tasks import Task
from kernelrl_plugin_starter.composition.parts import PARTS
from kernelrl_plugin_starter.composition.problems import problem
from kernelrl_plugin_starter.composition.source import ComposeTasks
from kernelrl_plugin_starter.config import ComposeOptions
from kernelrl_testing.contracts import TaskSourceContract
from kernelrl_testing.core import main

SOURCE = ComposeTasks(ComposeOptions())


class TestContract(TaskSourceContract):
    component = "compose"
    options: ClassVar[Mapping[str, Any]] = {"count": 60, "held_out": 20}


def families(task: Task) -> set[str]:
    return {PARTS[name].family for name in task.name.split("-")}


def pairs(task: Task) -> set[tuple[str, str]]:
    return set(itertools.combinations(sorted(families(task)), 2))


def demonstrated_pairs() -> set[tuple[str, str]]:
    return set().union(*(pairs(task) for split in ("train", "practice") for task in SOURCE.tasks(split)))


def test_there_are_thousands_of_tasks_of_all_lengths_and_dtypes() -> None:
    tasks = SOURCE.tasks("train")
    assert len({task.name for task in tasks}) == len(tasks) == 2000
    for split in ("train", "held_out"):
        listed = SOURCE.tasks(split)
        assert {task.level for task in listed} == {2, 3, 4}
        for dtype in ("float16", "bfloat16"):
            assert any(dtype in task.reference for task in listed)


def test_tasks_are_the_same_in_every_process_and_for_every_count() -> None:
    few = ComposeTasks(ComposeOptions(count=100, held_out=10))
    assert few.tasks("train") == SOURCE.tasks("train")[:100]
    assert few.tasks("held_out") == SOURCE.tasks("held_out")[:10]
    assert few.tasks("train")[0].name == "gauss-scale-complement-sum"


def test_another_seed_holds_other_pairs_out() -> None:
    other = ComposeTasks(ComposeOptions(seed=1, count=200))
    assert any(pairs(task) - demonstrated_pairs() for task in other.tasks("train"))


def test_every_held_out_task_has_a_pair_of_parts_that_no_demonstration_has() -> None:
    known = demonstrated_pairs()
    assert all(pairs(task) - known for task in SOURCE.tasks("held_out"))


def test_every_part_occurs_in_training() -> None:
    used = {name for task in SOURCE.tasks("train") for name in task.name.split("-")}
    assert used == set(PARTS)


def test_the_guard_finds_no_held_out_task_among_those_with_demonstrations() -> None:
    held_out = NearDuplicates((task.id, task.reference) for task in SOURCE.tasks("held_out"))
    others = [*SOURCE.tasks("train"), *SOURCE.tasks("practice")]
    assert [(task.id, found) for task in others if (found := held_out.matches(task.reference))] == []


def test_the_guard_tells_parts_of_different_families_apart() -> None:
    references = {name: problem((part,), "small", ("float32",), 0).reference() for name, part in PARTS.items()}
    alike = [
        pair
        for pair in itertools.combinations(PARTS, 2)
        if PARTS[pair[0]].family != PARTS[pair[1]].family and nearly_equal(references[pair[0]], references[pair[1]])
    ]
    assert alike == []


def test_a_demonstration_has_three_speeds_and_no_held_out_task_has_one() -> None:
    for task in [*SOURCE.tasks("train")[:50], *SOURCE.tasks("practice")]:
        sources = {one.source for one in SOURCE.demonstrations(task)}
        assert len(sources) == 3
    assert not any(SOURCE.demonstrations(task) for task in SOURCE.tasks("held_out"))


def test_task_and_demonstration_are_short() -> None:
    """SmolLM2's tokenizer makes a token of 2.5 characters of such text, and of more in most files."""
    for task in SOURCE.tasks("train"):
        longest = max(len(one.source) for one in SOURCE.demonstrations(task))
        assert len(task.reference) + longest < 2.5 * 1024


def test_huge_tasks_are_the_small_ones_with_other_sizes() -> None:
    huge = ComposeTasks(ComposeOptions(size="huge", count=50))
    for small, large in zip(SOURCE.tasks("train")[:50], huge.tasks("train"), strict=True):
        assert small.id == large.id
        assert small.reference != large.reference
        assert small.reference.partition("def get_inputs")[0] == large.reference.partition("def get_inputs")[0]


def test_more_tasks_than_there_are_compositions_are_refused_with_their_number() -> None:
    source = ComposeTasks(ComposeOptions(levels=(2,), count=5000))
    with pytest.raises(UsageError, match="there are only") as caught:
        source.tasks("train")
    assert "tasks.count=" in str(caught.value.fix)


def test_show_finds_a_task_by_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    task = SOURCE.tasks("held_out")[0]
    with pytest.raises(SystemExit) as caught:
        main(["tasks", "show", task.id])
    assert not caught.value.code
    assert task.reference in capsys.readouterr().out


def test_list_takes_the_split_and_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tasks", "list", "--use", "compose", "count=20", "--split", "train", "--level", "3"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == [task.id for task in SOURCE.tasks("train")[:20] if task.level == 3]
