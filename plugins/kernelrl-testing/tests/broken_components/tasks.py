from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import attrs

from broken_components import Broken
from kernelrl_core.api.tasks import Demonstration, Outcome, Task
from kernelrl_testing.fakes import FakeTasks

REFERENCE = "class Model: ...\ndef get_inputs(): return [{0}]\ndef get_init_inputs(): return []\n"
TASKS = [Task("a", REFERENCE.format(1)), Task("b", REFERENCE.format(2), "held_out")]


class Good(FakeTasks):
    def __init__(self) -> None:
        super().__init__(TASKS)


class SameId(FakeTasks):
    def __init__(self) -> None:
        super().__init__([TASKS[0], attrs.evolve(TASKS[1], id="a")])


class SameReference(FakeTasks):
    def __init__(self) -> None:
        super().__init__([TASKS[0], attrs.evolve(TASKS[1], reference=TASKS[0].reference)])


class NotTasks(FakeTasks):
    """References of `numbered_tasks` do not parse."""

    def __init__(self) -> None:
        super().__init__()


class Elsewhere(Good):
    def tasks(self, split: str) -> Any:
        return [attrs.evolve(task, split="test") for task in super().tasks(split)]


class Shuffled(Good):
    def tasks(self, split: str) -> Any:
        return [attrs.evolve(task, name=str(random.random())) for task in super().tasks(split)]


class AnySplit(Good):
    def tasks(self, split: str) -> Any:
        return super().tasks(split) if split in self.splits() else []


class Opaque(Good):
    def manifest(self) -> Any:
        return {"path": Path("tasks")}


class Shown(Good):
    def demonstrations(self, task: Task) -> Any:
        return [Demonstration("class ModelNew: ...", "triton", Outcome.CORRECT)]


class ShownInTraining(Shown):
    training_splits = ("held_out",)


class NoSplits(Good):
    def splits(self) -> Any:
        return ("train", "train")


class Executes(Good):
    def tasks(self, split: str) -> Any:
        listed = super().tasks(split)
        for task in listed:
            exec(compile(task.reference, f"{task.id}.py", "exec"), {})
        return listed


class NoFile(Good):
    def tasks(self, split: str) -> Any:
        return Path("no_such_file").read_text()


TWICE = ["tasks_parse_and_have_ids_of_their_own", "declares_what_its_kind_requires"]
EVERY_LISTING = [
    "tasks_parse_and_have_ids_of_their_own",
    "tasks_belong_to_the_split_that_lists_them",
    "splits_are_disjoint",
    "order_is_stable",
    "listing_executes_no_task",
    "an_unknown_split_is_a_usage_error",
    "manifest_is_plain_data",
    "held_out_tasks_have_no_demonstrations",
]
BROKEN = [
    Broken("tasks", "tasks.Good", ()),
    Broken("tasks", "tasks.ShownInTraining", ()),
    Broken("tasks", "tasks.SameId", ["tasks_parse_and_have_ids_of_their_own"]),
    Broken("tasks", "tasks.SameReference", ["splits_are_disjoint"]),
    Broken("tasks", "tasks.NotTasks", ["tasks_parse_and_have_ids_of_their_own"]),
    Broken("tasks", "tasks.Elsewhere", ["tasks_belong_to_the_split_that_lists_them"]),
    Broken("tasks", "tasks.Shuffled", ["order_is_stable"]),
    Broken("tasks", "tasks.AnySplit", ["an_unknown_split_is_a_usage_error"]),
    Broken("tasks", "tasks.Opaque", ["manifest_is_plain_data"]),
    Broken("tasks", "tasks.Shown", ["held_out_tasks_have_no_demonstrations"]),
    Broken("tasks", "tasks.NoSplits", TWICE),
    Broken("tasks", "tasks.Executes", ["listing_executes_no_task"]),
    Broken("tasks", "tasks.NoFile", EVERY_LISTING),
]
