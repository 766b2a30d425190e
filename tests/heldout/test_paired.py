"""Paired differences: numbers worked by hand, and properties on random data."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.heldout.intervals import detectable_difference, expected_error, t_interval, t_quantile
from kernelrl_core.heldout.paired import (
    METRICS,
    PairedDifference,
    TaskValues,
    paired_differences,
    shared_tasks,
    task_values,
)
from kernelrl_core.types import Episode, Group, Outcome, Score, Turn
from kernelrl_testing.values import make_evaluation, make_task, make_turn

SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=20)


def values(*shares: float | None) -> TaskValues:
    """Tasks 0, 1, …, with the same value for every metric."""
    return {str(index): dict.fromkeys(METRICS, share) for index, share in enumerate(shares)}


def found(metric: str, base: list[TaskValues], changed: list[TaskValues]) -> PairedDifference:
    return next(row for row in paired_differences(base, changed) if row.metric == metric)


def turn(correct: bool, speedup: float | None = None, score: float = 0.0, *, lost: bool = False) -> Turn:
    outcome = Outcome.INFRA_ERROR if lost else Outcome.CORRECT if correct else Outcome.INCORRECT
    evaluation = None if lost else make_evaluation(outcome, speedup=speedup)
    return make_turn(outcome, evaluation=evaluation, score=Score(score))


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.3027),
        (0.975, 4, 2.7764),
        (0.975, 16, 2.1199),
        (0.975, 99, 1.9842),
        (0.8, 1, 1.3764),
        (0.8, 4, 0.9410),
        (0.975, 20_001, 1.9601),
    ],
)
def test_quantiles_are_those_of_printed_tables(probability: float, degrees: int, expected: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(("probability", "degrees"), [(0.5, 3), (1.0, 3), (0.975, 0)])
def test_a_quantile_out_of_range_is_refused(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        t_quantile(probability, degrees)


def test_an_interval_worked_by_hand() -> None:
    """Differences 0.1, 0.2, 0.3, 0.0, 0.4: mean 0.2, s = sqrt(0.1 / 4) = 0.158114, s / sqrt(5) = 0.0707107, and
    t(0.975, 4) = 2.776445 gives 0.2 ± 0.196324; detectable is (2.776445 + 0.940965) * 0.0707107 = 0.262861."""
    row = found("correct", [values(0.5, 0.5, 0.5, 0.5, 0.5)], [values(0.6, 0.7, 0.8, 0.5, 0.9)])
    assert row.base == pytest.approx(0.5)
    assert row.changed == pytest.approx(0.7)
    assert row.difference == pytest.approx(0.2)
    assert row.interval == pytest.approx((0.003676, 0.396324), abs=1e-6)
    assert row.detectable == pytest.approx(0.262861, abs=1e-6)


def test_seeds_are_averaged_for_each_task_and_reported() -> None:
    """Seed differences are 0.2 and 0.0 on average; per task 0.25 and -0.05 over both seeds."""
    base, changed = [values(0.0, 0.5), values(0.4, 0.6)], [values(0.4, 0.5), values(0.5, 0.5)]
    row = found("reward", base, changed)
    assert row.by_seed == pytest.approx((0.2, 0.0))
    assert row.difference == pytest.approx(0.1)
    # Two tasks: s = 0.3 / sqrt(2), so the standard error is 0.15.
    assert row.interval == pytest.approx((0.1 - 12.7062 * 0.15, 0.1 + 12.7062 * 0.15), abs=1e-4)


def test_one_task_has_a_difference_and_no_interval() -> None:
    row = found("pass@1", [values(0.25)], [values(0.75)])
    assert (row.difference, row.interval, row.detectable) == (0.5, None, None)


def test_tasks_that_differ_equally_have_no_interval() -> None:
    """Their variance would be 0, and so would the smallest detectable difference."""
    row = found("pass@1", [values(0.1, 0.2, 0.3)], [values(0.4, 0.5, 0.6)])
    assert row.difference == pytest.approx(0.3)
    assert (row.interval, row.detectable) == (None, None)


def test_a_metric_that_one_task_lacks_is_not_compared() -> None:
    row = found("fast_1", [values(0.5, None)], [values(0.5, 0.5)])
    assert row == PairedDifference("fast_1")
    assert found("fast_1", [{}], [values(0.5)]) == PairedDifference("fast_1")


def test_only_tasks_with_values_in_every_evaluation_are_compared() -> None:
    zero, one = values(0.0)["0"], values(1.0)["0"]
    base: list[TaskValues] = [{"a": zero, "b": zero}]
    changed: list[TaskValues] = [{"b": one, "c": one}]
    assert shared_tasks([*base, *changed]) == ["b"]
    assert found("correct", base, changed).difference == 1.0


@pytest.mark.parametrize("arms", [([], []), ([values(0.0)], [])])
def test_unequal_numbers_of_evaluations_are_refused(arms: tuple[list[TaskValues], list[TaskValues]]) -> None:
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_differences(*arms)


def test_values_of_a_task_worked_by_hand() -> None:
    """Three episodes: solved in the second turn at 1.5x; never solved; lost. Five turns remain, one of them correct."""
    task = make_task("t")
    solved = Episode((turn(False), turn(True, 1.5, 1.8)))
    failed = Episode((turn(False), turn(False), turn(False, score=0.1)))
    lost = Episode((turn(False, lost=True),))
    assert task_values([Group(task, (solved, failed, lost)), Group(make_task("other"), (lost,))]) == {
        task.id: {
            "compiled": 1.0,
            "correct": 0.2,
            "pass@1": 0.5,
            "fast_1": 0.5,
            "speedup": 0.75,
            "reward": pytest.approx(0.95),
        }
    }


def test_fast_1_and_speedup_are_not_measured_if_a_correct_kernel_was_not_timed() -> None:
    untimed, slow = Episode((turn(True),)), Episode((turn(True, 0.9),))
    task = make_task("t")
    assert task_values([Group(task, (untimed, slow))])[task.id]["fast_1"] is None
    assert task_values([Group(task, (untimed, slow))])[task.id]["speedup"] is None
    assert task_values([Group(task, (slow,))])[task.id]["fast_1"] == 0.0


def test_expected_error_worked_by_hand() -> None:
    """9 tasks, 3 episodes: sqrt((1/9 + 1/9) / 9) = 0.157135. Without sampling noise, the source's example needs 969
    tasks to detect 0.03: with its normal quantiles 2.801585 * sqrt(1/9 / 969) = 0.03."""
    assert expected_error(9, 3) == pytest.approx(0.157135, abs=1e-6)
    assert detectable_difference(expected_error(969, 10**9), 969) == pytest.approx(0.03, abs=1e-4)


@given(st.data())
def test_exchanging_the_recipes_negates_the_difference(data: st.DataObject) -> None:
    base = data.draw(SHARES)
    changed = data.draw(st.lists(st.floats(0, 1), min_size=len(base), max_size=len(base)))
    there, back = (
        found("correct", [values(*one)], [values(*other)]) for one, other in ((base, changed), (changed, base))
    )
    assert there.difference == pytest.approx(-(back.difference or 0.0), abs=1e-12)
    assert there.detectable == pytest.approx(back.detectable)
    assert (there.interval is None) == (back.interval is None)
    if there.interval is None or back.interval is None:
        return
    assert there.interval == pytest.approx((-back.interval[1], -back.interval[0]), abs=1e-9)
    assert there.interval[0] - 1e-12 <= (there.difference or 0.0) <= there.interval[1] + 1e-12


@given(SHARES, st.floats(-1, 1))
def test_the_interval_moves_with_the_values_and_the_order_of_tasks_is_irrelevant(
    shares: list[float], shift: float
) -> None:
    low, high = t_interval(shares)
    assert t_interval([share + shift for share in reversed(shares)]) == pytest.approx((low + shift, high + shift))


def test_coverage_and_power_on_normal_differences() -> None:
    """Of 4,000 experiments with 6 tasks, 95 % of the intervals contain the true difference, and 80 % exclude 0 if the
    true difference has the detectable size; four standard deviations of the counts are 1.4 % and 2.6 %."""
    random_source = random.Random(0)
    tasks, deviation = 6, 0.2
    true = detectable_difference(deviation / math.sqrt(tasks), tasks)
    drawn = [[random_source.gauss(true, deviation) for _ in range(tasks)] for _ in range(4000)]
    intervals = [t_interval(differences) for differences in drawn]
    assert statistics.fmean(low <= true <= high for low, high in intervals) == pytest.approx(0.95, abs=0.014)
    assert statistics.fmean(low > 0 for low, _ in intervals) == pytest.approx(0.8, abs=0.026)
