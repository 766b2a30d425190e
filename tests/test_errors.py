"""Hints for a name that is not known."""

from __future__ import annotations

from kernelrl_core.errors import suggestion


def test_a_similar_name_is_suggested() -> None:
    assert suggestion("sofmax", ["softmax", "relu"]) == "did you mean 'softmax'?"


def test_names_are_listed_where_none_is_similar() -> None:
    assert suggestion("xyz", ["softmax", "relu"]) == "known: relu, softmax"


def test_a_long_list_ends_with_the_number_of_further_names() -> None:
    names = [f"task_{number:02}" for number in range(33)]
    assert suggestion("q", names).endswith("task_29 and 3 more")
