"""Rows of samples."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kernelrl_core.errors import KernelRLError
from kernelrl_core.runs.rows import sample_row, turn_from_row, turn_without_task
from kernelrl_core.types import ExcludedExample, Outcome, ShownExample
from kernelrl_testing.values import make_turn


def test_the_row_of_a_lost_turn_has_the_boundary_where_it_was_lost() -> None:
    turn = attrs.evolve(make_turn(Outcome.INFRA_ERROR), lost_at="sampling")
    row = sample_row(turn)
    assert row["lost_at"] == "sampling"
    assert turn_from_row(row, turn.task).lost_at == "sampling"


def test_a_turn_that_was_not_lost_has_no_such_key() -> None:
    turn = make_turn(Outcome.CORRECT)
    row = sample_row(turn)
    assert "lost_at" not in row
    assert turn_from_row(row, turn.task) == turn


def test_row_has_the_shown_and_the_excluded_examples() -> None:
    shown = (ShownExample("a", "corpus@1", 0.5),)
    turn = make_turn(
        Outcome.CORRECT, examples=shown, excluded_examples=(ExcludedExample("b", "corpus@1", None, "leak_task"),)
    )
    row = sample_row(turn)
    assert row["examples"] == [{"id": "a", "origin": "corpus@1", "similarity": 0.5}]
    assert row["excluded_examples"] == [{"id": "b", "origin": "corpus@1", "similarity": None, "reason": "leak_task"}]
    assert turn_from_row(row, turn.task) == turn


def test_row_of_a_turn_without_retrieval_has_no_examples() -> None:
    row = sample_row(make_turn(Outcome.CORRECT))
    assert {"examples", "excluded_examples"} & set(row) == set()


def test_a_row_of_another_version_of_its_task_is_refused() -> None:
    turn = make_turn()
    with pytest.raises(KernelRLError, match="belongs to another version of task") as caught:
        turn_from_row(sample_row(turn), attrs.evolve(turn.task, reference="class Model: changed"))
    assert "restore the tasks" in caught.value.fix


@pytest.mark.parametrize("change", [{"outcome": "great"}, {"of_the_future": 1}, {"findings": [{"rule": "a"}]}])
def test_a_row_that_is_no_turn_of_this_version_is_named_by_its_sample(change: dict[str, Any]) -> None:
    turn = make_turn()
    row = {**sample_row(turn), **change}
    for read in (lambda: turn_from_row(row, turn.task), lambda: turn_without_task(row)):
        with pytest.raises(KernelRLError, match=f"sample {turn.id} cannot be read"):
            read()
