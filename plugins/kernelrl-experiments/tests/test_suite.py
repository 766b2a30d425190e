"""Suites: which kernels belong to which tasks, and the places of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelrl_core.errors import UsageError
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.types import Task
from kernelrl_experiments.suite import BrokenPair, SuitePair, read_suite
from kernelrl_testing.fakes import FakeTasks

TASK = """
class Model: ...
def get_inputs(): ...
def get_init_inputs(): ...
"""
REGISTRY = Registry(())


def write(folder: Path, *tasks: str, **kernels: str) -> Path:
    for name in tasks:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TASK)
    for name in kernels.values():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"# {name}\n")
    return folder


def placed(pairs: list[SuitePair], folder: Path) -> list[tuple[str, str]]:
    return [(pair.task.id, Path(pair.file).relative_to(folder).as_posix()) for pair in pairs]


def messages(broken: list[BrokenPair], folder: Path) -> list[str]:
    return [one.message.replace(f"{folder}/", "") for one in broken]


def test_files_beside_a_task_are_its_kernels(tmp_path: Path) -> None:
    write(tmp_path, "a/relu/task.py", one="a/relu/one.py", two="a/relu/two.py", hidden="a/relu/_two.py")
    pairs, broken = read_suite(tmp_path, registry=REGISTRY)
    assert placed(pairs, tmp_path) == [("a/relu", "a/relu/one.py"), ("a/relu", "a/relu/two.py")]
    assert broken == []


def test_kernels_and_tasks_of_equal_names_are_pairs(tmp_path: Path) -> None:
    write(tmp_path, "tasks/relu.py", "tasks/deep/sum.py", one="kernels/relu.py", two="kernels/deep/sum/fast.py")
    pairs, broken = read_suite(tmp_path, registry=REGISTRY)
    assert placed(pairs, tmp_path) == [("deep/sum", "kernels/deep/sum/fast.py"), ("relu", "kernels/relu.py")]
    assert broken == []


def test_a_kernel_without_a_task_is_named_with_the_nearest_task(tmp_path: Path) -> None:
    write(tmp_path, "tasks/softmax.py", one="kernels/softmx.py", two="kernels/softmax.py")
    pairs, broken = read_suite(tmp_path, registry=REGISTRY)
    assert len(pairs) == 1
    assert messages(broken, tmp_path) == ["kernels/softmx.py: no task tasks/softmx.py; did you mean 'softmax'?"]


def test_a_file_is_for_the_task_that_it_is_named_by(tmp_path: Path) -> None:
    write(tmp_path, one="bench/1/relu.py")
    source = FakeTasks([Task("bench/1/relu", "reference")])
    pairs, _ = read_suite(tmp_path, registry=REGISTRY, sources=lambda: [source])
    assert placed(pairs, tmp_path) == [("bench/1/relu", "bench/1/relu.py")]


def test_a_yaml_file_lists_tasks_and_kernels_relative_to_itself(tmp_path: Path) -> None:
    write(tmp_path, "tasks/relu.py", one="a.py", two="deep/b.py")
    (tmp_path / "suite.yaml").write_text("kernels:\n- {task: tasks/relu.py, kernel: [a.py, deep/b.py], backend: cpp}\n")
    pairs, broken = read_suite(tmp_path / "suite.yaml", registry=REGISTRY)
    assert placed(pairs, tmp_path) == [("tasks/relu", "a.py"), ("tasks/relu", "deep/b.py")]
    assert ({pair.backend for pair in pairs}, broken) == ({"cpp"}, [])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{task: tasks/gone.py, kernel: a.py}", "suite.yaml:3: tasks/gone.py: no such file"),
        ("{task: tasks/relu.py, kernel: gone.py}", "suite.yaml:3: gone.py: kernel file cannot be read: No such file"),
        ("{task: tasks/relu.py}", "suite.yaml:3: missing: kernel"),
        ("{task: tasks/relu.py, kernels: a.py}", "suite.yaml:3: unknown key 'kernels'; did you mean 'kernel'?"),
        ("{task: 3, kernel: a.py}", "suite.yaml:3: all values are texts"),
        ("a.py", "suite.yaml:3: not an entry such as {task"),
    ],
)
def test_a_mistake_in_an_entry_has_its_line_and_other_entries_are_read(
    tmp_path: Path, entry: str, message: str
) -> None:
    write(tmp_path, "tasks/relu.py", one="a.py")
    (tmp_path / "suite.yaml").write_text(f"kernels:\n- {{task: tasks/relu.py, kernel: a.py}}\n- {entry}\n")
    pairs, broken = read_suite(tmp_path / "suite.yaml", registry=REGISTRY)
    assert len(pairs) == 1
    assert [text.startswith(message) for text in messages(broken, tmp_path)] == [True], broken


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernels: []\n", r":1: no list 'kernels'"),
        ("a: 1\n", r":1: no list 'kernels'"),
        ("kernels: [a]\nmore: 1\n", r":2: unknown key 'more'"),
        ("kernels: [\n", r"suite.yaml:\d: not YAML"),
    ],
)
def test_a_file_that_is_no_suite_is_an_error_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "suite.yaml").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_suite(tmp_path / "suite.yaml", registry=REGISTRY)
