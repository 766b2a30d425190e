"""Hints for a name or a path that is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelrl_core.errors import nearest_path, suggestion


def test_a_similar_name_is_suggested() -> None:
    assert suggestion("sofmax", ["softmax", "relu"]) == "did you mean 'softmax'?"


def test_names_are_listed_where_none_is_similar() -> None:
    assert suggestion("xyz", ["softmax", "relu"]) == "known: relu, softmax"


def test_a_long_list_ends_with_the_number_of_further_names() -> None:
    names = [f"task_{number:02}" for number in range(33)]
    assert suggestion("q", names).endswith("task_29 and 3 more")


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("softmx.py", "softmax.py"),
        ("softmax.cu", "softmax.cpp"),
        ("tsaks/relu.py", "tasks/relu.py"),
        ("tasks/rleu.py", "tasks/relu.py"),
        ("tsaks/nowhere.py", "tasks"),
        ("b.py", None),
        ("nowhere/relu.py", None),
    ],
)
def test_the_nearest_existing_path_is_suggested(tmp_path: Path, missing: str, expected: str | None) -> None:
    (tmp_path / "tasks").mkdir()
    for name in ("a.py", "softmax.py", "softmax.cpp", "tasks/relu.py"):
        (tmp_path / name).write_text("")
    hint = "" if expected is None else f"; did you mean {str(tmp_path / expected)!r}?"
    assert nearest_path(tmp_path / missing) == hint
