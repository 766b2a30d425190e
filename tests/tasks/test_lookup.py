"""Lookup of tasks by file or id; task files are validated by syntax tree and never executed."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.errors import LookupFailed, UsageError
from kernelrl_core.plugins.registry import registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.sources.task_source import parse_task_source
from kernelrl_core.tasks.lookup import find_task, source_for
from kernelrl_core.types import Task
from kernelrl_testing.fakes import FakeTasks

TASK = """\
class Model: ...
def get_inputs(): ...
get_init_inputs = lambda: []
raise SystemExit("executed")
"""
SOURCE = FakeTasks([Task("own/relu", TASK), Task("own/gelu", TASK, "held_out")])


def test_a_file_becomes_a_task_named_by_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "my_task.py"
    path.write_text(TASK)
    found = find_task(str(path), registry=registry())
    assert (found.id, found.reference) == ("my_task", TASK)


def test_an_id_is_looked_up_in_every_split_of_the_source() -> None:
    assert find_task("own/gelu", registry=registry(), source=SOURCE).split == "held_out"


def test_the_source_of_a_recipe_is_used_only_for_ids_that_may_be_its_own(tmp_path: Path) -> None:
    pytest.importorskip("kernelrl_plugin_kernelbench")
    path = tmp_path / "my_task.py"
    path.write_text(TASK)
    recipe_tasks = Use("kernelbench")
    assert source_for("starter/1/relu_double", recipe_tasks, registry()) is None
    assert source_for(str(path), recipe_tasks, registry()) is None
    for own in ("kernelbench/1/19", "unknown/1"):
        assert type(source_for(own, recipe_tasks, registry())).__name__ == "KernelBenchTasks"


def test_the_first_part_of_an_id_names_the_source() -> None:
    pytest.importorskip("kernelrl_plugin_starter")
    known = registry().find("tasks", "starter").load()(registry().config_class("tasks", "starter")())
    wanted = known.tasks("train")[0]
    assert find_task(wanted.id, registry=registry()) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("own/rellu", "did you mean 'own/relu'"),
        ("something else", "such as 'own/relu'"),
        ("nowhere.py", "no such file"),
    ],
)
def test_unknown_task_suggests_the_nearest_id(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_task(text, registry=registry(), source=SOURCE)


@pytest.mark.parametrize(
    ("text", "message"), [("nosource/1/relu", "no task source 'nosource'"), ("relu", "looks like")]
)
def test_an_unknown_source_is_named(text: str, message: str) -> None:
    with pytest.raises(LookupFailed, match=message):
        find_task(text, registry=registry())


def test_source_with_required_options_suggests_a_recipe() -> None:
    pytest.importorskip("kernelrl_plugin_kernelbench")
    with pytest.raises(UsageError, match=r"needs options \(path\)") as caught:
        find_task("directory/relu", registry=registry())
    assert "--recipe" in caught.value.fix


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (\n", "t.py:1: not Python"),
        ("a = 1\nb c\n", "t.py:2: not Python"),
        ("class Model: ...", "t.py:1: not a task: defines no get_inputs or get_init_inputs at module level"),
        ("class Model:\n    def get_inputs(self): ...\n    def get_init_inputs(self): ...", "defines no get_inputs"),
        ("", "defines no Model or get_inputs or get_init_inputs"),
        ("x\0y", "t.py:1: not Python"),
        ("(" * 100_000, "t.py:1: not Python"),
        ("#" * (2 << 20), "longer than"),
    ],
)
def test_file_that_is_not_a_task_is_an_error_with_line(source: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_task_source(source, "t.py")
    assert message in caught.value.message


@given(st.text(max_size=200))
def test_any_text_is_a_task_or_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        parse_task_source(text, "t.py")


@pytest.mark.parametrize("content", [b"\xff\xfe\0binary", b"x = 1"])
def test_unreadable_task_file_is_a_usage_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "junk.py"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"junk\.py"):
        find_task(str(path), registry=registry())
