"""Results by level, turn and budget, against values computed by hand."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.heldout.scoreboard import pass_at_k, scoreboard
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.types import Episode, Group, Outcome, Turn
from kernelrl_experiments.breakdown import best_of_subset, breakdown
from kernelrl_testing.values import make_evaluation, make_task, make_turn

SETTINGS = EvalSettings()


def turn(speedup: float | None = None, *, eager: float | None = None, untimed: bool = False) -> Turn:
    """A correct turn if a speedup is given or `untimed`, else an incorrect one."""
    outcome = Outcome.CORRECT if speedup is not None or untimed else Outcome.INCORRECT
    return make_turn(outcome, evaluation=make_evaluation(outcome, speedup=speedup, eager_speedup=eager))


LOST = make_turn(Outcome.INFRA_ERROR, evaluation=None)


def group(*episodes: list[Turn], level: int | None = None, name: str = "t") -> Group:
    return Group(make_task(name, level=level), tuple(Episode(tuple(turns)) for turns in episodes))


TWO_TASKS = [
    group([turn(), turn(2.0)], [turn(0.5), turn(1.0)], level=1),
    group([turn(), turn()], [turn(), turn(4.0)], level=2, name="u"),
]
"""First task: solved in turn 2 at 2.0x; in turn 1 at 0.5x and in turn 2 at 1.0x. Second: never; in turn 2 at 4.0x."""


def test_the_best_of_a_subset_worked_by_hand() -> None:
    """Of 1, 2 and 4 the pairs have the maxima 2, 4 and 4."""
    assert best_of_subset([4.0, 1.0, 2.0], 1) == pytest.approx(7 / 3)
    assert best_of_subset([4.0, 1.0, 2.0], 2) == pytest.approx(10 / 3)
    assert best_of_subset([4.0, 1.0, 2.0], 3) == 4.0


@pytest.mark.parametrize("k", [0, 3])
def test_a_subset_of_impossible_size_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="best of"):
        best_of_subset([1.0, 2.0], k)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=7), st.data())
def test_the_best_of_a_subset_is_the_mean_over_all_subsets(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    subsets = itertools.combinations(values, k)
    assert best_of_subset(values, k) == pytest.approx(statistics.fmean(map(max, subsets)))


@given(st.integers(1, 8), st.data())
def test_the_best_of_solved_and_unsolved_is_pass_at_k(n: int, data: st.DataObject) -> None:
    solved, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    assert best_of_subset([1.0] * solved + [0.0] * (n - solved), k) == pytest.approx(pass_at_k(n, solved, k))


def test_budgets_worked_by_hand() -> None:
    """One turn: the first task has speedups 0 and 0.5, the second 0 and 0. Two turns: 2 and 1; 0 and 4."""
    found = {(row["episodes"], row["turns"]): row for row in breakdown(TWO_TASKS, SETTINGS)["budgets"]}
    assert {place: (row["correct"], row["speedup"]) for place, row in found.items()} == {
        (1, 1): (0.25, 0.125),
        (2, 1): (0.5, 0.25),
        (1, 2): (0.75, 1.75),
        (2, 2): (1.0, 3.0),
    }


def test_turns_count_their_own_replies_and_the_best_so_far() -> None:
    first, second = breakdown(TWO_TASKS, SETTINGS)["turns"]
    assert (first["num_replies"], first["correct_rate"], first["outcomes"]["incorrect"]) == (4, 0.25, 3)
    assert (second["num_replies"], second["correct_rate"], second["outcomes"]["correct"]) == (4, 0.75, 3)
    assert second["best@2"] == {"correct": 1.0, "speedup": 3.0}
    assert second["avg@2"] == {"correct": 0.75, "speedup": 1.75}


def test_an_episode_that_stopped_early_keeps_its_result() -> None:
    rows = breakdown([group([turn(2.0)], [turn(), turn(1.0)])], SETTINGS)["turns"]
    assert [row["num_replies"] for row in rows] == [2, 1]
    assert [row["avg@2"]["speedup"] for row in rows] == [1.0, 1.5]


def test_levels_have_the_scoreboard_of_their_tasks() -> None:
    levels = breakdown(TWO_TASKS, SETTINGS)["levels"]
    assert list(levels) == ["1", "2"]
    assert (levels["1"]["pass@1"], levels["2"]["pass@1"]) == (1.0, 0.5)
    assert levels["2"]["geometric_mean_speedup"] == pytest.approx(4.0)


def test_tasks_without_levels_have_none() -> None:
    assert breakdown([group([turn(1.0)])], SETTINGS)["levels"] == {}


def test_lost_episodes_limit_the_budgets() -> None:
    """One task has two episodes, the other one of two."""
    budgets = breakdown([group([turn(1.0)], [turn()]), group([turn(3.0)], [LOST], name="u")], SETTINGS)["budgets"]
    assert budgets == [{"episodes": 1, "turns": 1, "correct": 0.75, "speedup": 1.75}]


def test_an_evaluation_without_replies_has_no_turns_and_no_budgets() -> None:
    found = breakdown([group([LOST])], SETTINGS)
    assert (found["turns"], found["budgets"], found["intervals"]) == ([], [], {})


def test_an_untimed_kernel_leaves_the_speedup_unknown() -> None:
    assert breakdown([group([turn(untimed=True)])], SETTINGS)["budgets"][0] == {
        "episodes": 1,
        "turns": 1,
        "correct": 1.0,
        "speedup": None,
    }


def test_intervals_of_rates_and_speedups_name_tasks_and_quality() -> None:
    """Geometric means: two tasks with speedups 1 and 4, so the resamples are 1, 2 and 4."""
    found = breakdown([group([turn(1.0)]), group([turn(4.0)], name="u")], SETTINGS)["intervals"]
    speedup = found["geometric_mean_speedup"]
    assert (speedup["low"], speedup["high"]) == pytest.approx((1.0, 4.0))
    assert (speedup["tasks"], speedup["method"], speedup["quality"]) == (2, "bootstrap", "very rough")
    assert found["pass@1"]["method"] == "wilson"
    assert {"correct_rate", "compile_rate", "fast_1", "fast_0.5", "fast_1_as_measured", "reward_mean"} <= set(found)


def test_speedups_over_eager_are_reported_beside_those_over_compile() -> None:
    """Over the baseline 0.8 and 1.2, over eager 1.6 and 2.5; one of three episodes is incorrect."""
    board = scoreboard([group([turn(0.8, eager=1.6)], [turn(1.2, eager=2.5)], [turn()])], SETTINGS)
    assert (board["fast_1"], board["fast_1_eager"], board["fast_2_eager"]) == pytest.approx((1 / 3, 2 / 3, 1 / 3))
    assert board["geometric_mean_speedup_eager"] == pytest.approx(2.0)
    assert "fast_1_eager" not in scoreboard([group([turn(0.8)])], SETTINGS)
