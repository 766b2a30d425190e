"""The contract of task sources."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

from kernelrl_core.errors import UsageError
from kernelrl_core.sources.task_source import parse_task_source
from kernelrl_core.types import Task
from kernelrl_testing.contracts.base import ComponentContract
from kernelrl_testing.contracts.breaches import Breach, Fault, calling, located, require

__all__ = ["TaskSourceContract"]

_FIX_SPLIT = "raise UsageError(f'no split {split!r}; known: …') for a split that splits() does not return"
_FIX_LIST = "return the tasks of each split that splits() returns; raise UsageError for a file of the user"


class TaskSourceContract(ComponentContract):
    """A task source lists tasks that parse, in the same order each time, and executes none."""

    kind = "tasks"
    limit_s: ClassVar[float] = 900.0

    def tasks(self, source: Any) -> list[Task]:
        """The tasks of all splits."""
        with calling("tasks", _FIX_LIST):
            return [task for split in source.splits() for task in source.tasks(split)]

    def test_declares_what_its_kind_requires(self) -> None:
        with calling("splits", "return the names of the splits"):
            super().test_declares_what_its_kind_requires()

    def test_tasks_parse_and_have_ids_of_their_own(self) -> None:
        tasks = self.tasks(self.make())
        require(tasks, "there is no task", _FIX_LIST)
        for task in tasks:
            require(isinstance(task, Task), f"tasks returns {task!r}, not a Task", _FIX_LIST)
            try:
                parse_task_source(task.reference, task.id)
            except UsageError as error:
                fix = "call parse_task_source on each reference, and list only those that it accepts"
                raise Breach(Fault(error.message, fix)) from error
        twice = sorted(one for one, count in Counter(task.id for task in tasks).items() if count > 1)
        require(not twice, f"ids that occur twice: {', '.join(twice[:5])}", "give each task an id of its own")

    def test_tasks_belong_to_the_split_that_lists_them(self) -> None:
        source = self.make()
        self.tasks(source)
        for split in source.splits():
            others = {task.split for task in source.tasks(split)} - {split}
            require(not others, f"split {split!r} lists tasks of {sorted(others)}", "set Task.split to the split")

    def test_splits_are_disjoint(self) -> None:
        first: dict[str, Task] = {}
        for task in self.tasks(self.make()):
            other = first.setdefault(task.sha256, task)
            message = f"{other.id} of split {other.split!r} and {task.id} of split {task.split!r} have one reference"
            require(other.split == task.split, message, "list a reference in one split only, or a held-out task leaks")

    def test_order_is_stable(self) -> None:
        source = self.make()
        first = self.tasks(source)
        stable = self.tasks(source) == first == self.tasks(self.make())
        require(stable, "two listings differ", "sort the tasks, for instance by id; draw nothing at random")

    def test_listing_executes_no_task(self) -> None:
        with _executed_modules() as executed:
            self.tasks(self.make())
        fix = "parse references with parse_task_source; only the judge executes them"
        require(not executed, f"listing executes a module that defines Model: {', '.join(executed)}", fix)

    def test_an_unknown_split_is_a_usage_error(self) -> None:
        source = self.make()
        self.tasks(source)
        try:
            listed = source.tasks("no_such_split")
        except UsageError:
            return
        except Exception as error:
            raise Breach(Fault(f"tasks('no_such_split') raises {located(error)}", _FIX_SPLIT)) from error
        raise Breach(Fault(f"tasks('no_such_split') returns {listed!r}", _FIX_SPLIT))

    def test_manifest_is_plain_data(self) -> None:
        source = self.make()
        self.tasks(source)
        with calling("the manifest as JSON", "return text, finite numbers, lists and mappings with text as keys"):
            json.dumps(source.manifest(), allow_nan=False)

    def test_held_out_tasks_have_no_demonstrations(self) -> None:
        source = self.make()
        tasks = self.tasks(source)
        training = {source.splits()[0], *source.training_splits}
        for task in tasks:
            if task.split not in training:
                message = f"{task.id} of split {task.split!r} has demonstrations"
                fix = "return () for tasks of other splits than the first and training_splits"
                require(not source.demonstrations(task), message, fix)


@contextmanager
def _executed_modules() -> Iterator[list[str]]:
    """Files of the modules with a `Model` and `get_inputs` that are executed in the context."""
    found: list[str] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name == "<module>" and {"Model", "get_inputs"} <= {*code.co_names}:
            found.append(code.co_filename)

    before = sys.getprofile()
    sys.setprofile(profile)
    threading.setprofile(profile)
    try:
        yield found
    finally:
        threading.setprofile(None)
        sys.setprofile(before)
