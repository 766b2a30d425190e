"""Tables of `kernelrl eval`: the results that they show and hide."""

from __future__ import annotations

from typing import Any

from kernelrl_core.heldout.scoreboard import scoreboard
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.types import Episode, Group, Outcome, Turn, Verdict
from kernelrl_experiments.breakdown import breakdown
from kernelrl_experiments.eval_report import _notes, csv_text, markdown_lines, text_lines
from kernelrl_testing.values import make_evaluation, make_task, make_turn

SETTINGS = EvalSettings()


def turn(speedup: float | None, verdict: Verdict = Verdict.CLEAN) -> Turn:
    outcome = Outcome.INCORRECT if speedup is None else Outcome.CORRECT
    return make_turn(outcome, evaluation=make_evaluation(outcome, speedup=speedup), verdict=verdict)


def report(*episodes: list[Turn], levels: tuple[int | None, ...] = (None,), policy: str = "p") -> dict[str, Any]:
    """A report in which every level has one task with these episodes."""
    groups = [
        Group(make_task(f"t{level}", level=level), tuple(Episode(tuple(turns)) for turns in episodes))
        for level in levels
    ]
    return {"policy": policy, **scoreboard(groups, SETTINGS), **breakdown(groups, SETTINGS)}


def test_results_as_measured_are_shown_only_where_a_suspect_changes_them() -> None:
    assert "as_measured" not in "\n".join(text_lines([report([turn(2.0)])]))
    lines = text_lines([report([turn(9.0, Verdict.SUSPECT)])])
    assert ["fast_2_as_measured", "1.000"] in [line.split() for line in lines]


def test_one_turn_and_one_level_have_no_tables_of_their_own() -> None:
    text = "\n".join(text_lines([report([turn(2.0)], levels=(1,))]))
    assert "turns" not in text
    assert "levels" not in text
    assert "budgets" not in text


def test_levels_turns_and_budgets_are_tables() -> None:
    lines = text_lines([report([turn(None), turn(2.0)], [turn(1.0), turn(None)], levels=(1, 2))])
    assert ["1", "0.500", "0.50x", "1.000", "1.50x"] in [line.split() for line in lines]
    assert ["2", "1.000", "1.00x", "1.000", "2.00x"] in [line.split() for line in lines]
    assert ["outcome", "episodes", "level", "1", "level", "2", "turn", "1", "turn", "2"] in [
        line.split() for line in lines
    ]


def test_of_many_turns_powers_of_two_and_the_last_are_shown() -> None:
    text = text_lines([report([turn(None)] * 11)])
    assert [line.split()[0] for line in text if line.split()[1:3] == ["1", "1.000"]] == ["1", "2", "4", "8", "11"]


def test_missing_results_are_notes_with_their_reason() -> None:
    assert text_lines([report([turn(None)])])[-1] == "no geometric_mean_speedup: no sample is correct"


def test_tables_without_run_times_have_no_speedups() -> None:
    untimed = make_turn(Outcome.CORRECT, evaluation=make_evaluation(Outcome.CORRECT))
    lines = text_lines([report([untimed, untimed], [turn(None), untimed], levels=(1, 2))])
    assert not [line for line in lines if "speedup" in line and not line.startswith("no ")]


def test_a_rough_interval_is_marked() -> None:
    lines = text_lines([report([turn(1.0)], levels=tuple(range(20)))])
    assert "pass@1                  1.000 [0.839, 1.000] rough" in lines
    assert "rough: the interval is of 20 to 49 tasks" in lines


def test_separators_in_a_name_do_not_add_a_column() -> None:
    found = report([turn(1.0)], policy="a|b, c")
    assert "| policy | a\\|b, c |" in markdown_lines([found])
    assert csv_text([found]).splitlines()[1].startswith('"a|b, c",all')


def test_results_that_are_absent_for_one_reason_share_a_line() -> None:
    reasons = {"fast_1": "not timed", "fast_2": "not timed", "pass@8": "too few"}
    assert _notes([{"policy": "p", "reasons": reasons, "intervals": {}}]) == [
        "no fast_1, fast_2: not timed",
        "no pass@8: too few",
    ]
