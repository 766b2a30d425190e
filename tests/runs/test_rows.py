"""Rows of samples."""

from __future__ import annotations

import attrs
from value_builders import make_turn

from kernelrl_core.runs.rows import sample_row, turn_from_row
from kernelrl_core.types import Outcome


def test_a_lost_turn_says_in_its_row_where_it_was_lost() -> None:
    turn = attrs.evolve(make_turn(Outcome.INFRA_ERROR), lost_at="sampling")
    row = sample_row(turn)
    assert row["lost_at"] == "sampling"
    assert turn_from_row(row, turn.task).lost_at == "sampling"


def test_a_turn_that_was_not_lost_has_no_such_key() -> None:
    turn = make_turn(Outcome.CORRECT)
    row = sample_row(turn)
    assert "lost_at" not in row
    assert turn_from_row(row, turn.task) == turn
