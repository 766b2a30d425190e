"""Selection of the tasks of held-out evaluation."""

from __future__ import annotations

from typing import Any

import pytest

from kernelrl_core.errors import KernelRLError, UsageError
from kernelrl_core.recipe.schema import EvalSettings, PositiveInt
from kernelrl_core.tasks.selection import eval_tasks
from kernelrl_core.types import Task
from kernelrl_testing.fakes import FakeTasks, numbered_tasks


class Splits(FakeTasks):
    """A source whose split `held_out` may be empty."""

    def splits(self) -> tuple[str, ...]:
        return ("train", "held_out")

    def tasks(self, split: str) -> list[Task]:
        return [task for task in numbered_tasks(train=3) if task.split == split]


def test_an_empty_split_is_refused_with_the_names_of_the_others() -> None:
    with pytest.raises(UsageError, match="split 'held_out' has no tasks to evaluate") as caught:
        eval_tasks(Splits(), EvalSettings())
    assert caught.value.fix.endswith("set eval.split to another split: train")


def test_the_first_tasks_of_a_split_are_evaluated() -> None:
    found = eval_tasks(Splits(), EvalSettings(split="train", max_tasks=PositiveInt(2)))
    assert [task.id for task in found] == ["train/0", "train/1"]


def test_a_misspelt_split_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no split 'tain'; known: train; did you mean 'train'\?"):
        eval_tasks(FakeTasks(numbered_tasks(train=3)), EvalSettings(split="tain"))


def test_a_source_that_lists_no_tasks_is_named() -> None:
    class Rows(FakeTasks):
        def tasks(self, split: str) -> Any:
            return [{"id": "a"}]

    with pytest.raises(KernelRLError, match="Rows returned dict from tasks, not Task"):
        eval_tasks(Rows(), EvalSettings(split="train"))
