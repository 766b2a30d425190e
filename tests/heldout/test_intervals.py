"""Intervals over tasks: numbers worked by hand, and the choice of the method."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.heldout.intervals import quality, ratio_interval, wilson_interval


def test_percentiles_of_all_resamples_worked_by_hand() -> None:
    """Two tasks with values 0 and 1: resamples have means 0, 0.5 and 1 with probabilities 1/4, 1/2 and 1/4.
    t(0.975, 1) sqrt(2) = 17.97, so the percentiles are the minimum and the maximum."""
    found = ratio_interval((0.0, 1.0), (1, 1), rate=False)
    assert found is not None
    assert (found.low, found.high, found.tasks, found.method) == (0.0, 1.0, 2, "bootstrap")


def test_the_interval_of_many_values_is_the_normal_one() -> None:
    """1,000 tasks, half 0 and half 1: 0.5 ± 1.9623 * 0.5 / sqrt(999) = 0.5 ± 0.03104; 2,000 resamples."""
    found = ratio_interval((0.0, 1.0) * 500, (1,) * 1000, rate=False)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.469, 0.531), abs=0.003)


@pytest.mark.parametrize("solved", [0, 4, 30, 56, 60])
def test_one_episode_per_task_has_the_interval_of_wilson_over_tasks(solved: int) -> None:
    found = ratio_interval((1.0,) * solved + (0.0,) * (60 - solved), (1,) * 60, rate=True)
    assert found is not None
    assert found.method == "wilson"
    assert (found.low, found.high) == wilson_interval(solved / 60, 60)


def test_the_sample_size_of_several_episodes_worked_by_hand() -> None:
    """12 tasks of 4 episodes, half of them with 1, half with 3 solved: p = 0.5, V = 12/11 * 12 / 48² = 1/176, so the
    size is 0.25 * 176 = 44: more than 12 tasks, fewer than 48 episodes."""
    found = ratio_interval((1.0, 3.0) * 6, (4,) * 12, rate=True)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(wilson_interval(0.5, 44))


def test_few_tasks_above_0_have_the_number_of_tasks_as_sample_size() -> None:
    """4 of 12 tasks have one solved episode of 8."""
    found = ratio_interval((1.0,) * 4 + (0.0,) * 8, (8,) * 12, rate=True)
    assert found is not None
    assert (found.low, found.high) == wilson_interval(4 / 96, 12)


def test_equal_tasks_have_the_number_of_tasks_as_sample_size() -> None:
    found = ratio_interval((2.0,) * 12, (4,) * 12, rate=True)
    assert found is not None
    assert (found.low, found.high) == wilson_interval(0.5, 12)


def test_tasks_without_a_count_do_not_contribute() -> None:
    found, same = (
        ratio_interval(sums, counts, rate=False)
        for sums, counts in (((1.0, 0.0, 3.0, 4.0), (1, 0, 2, 1)), ((1.0, 3.0, 4.0), (1, 2, 1)))
    )
    assert found == same
    assert found is not None
    assert found.tasks == 3


@pytest.mark.parametrize("counts", [(), (5,), (0, 0, 3)])
def test_fewer_than_two_tasks_have_no_interval(counts: tuple[int, ...]) -> None:
    assert ratio_interval((1.0,) * len(counts), counts, rate=True) is None


@pytest.mark.parametrize(
    ("tasks", "expected"), [(2, "very rough"), (19, "very rough"), (20, "rough"), (49, "rough"), (50, "good")]
)
def test_quality_by_the_number_of_tasks(tasks: int, expected: str) -> None:
    assert quality(tasks) == expected


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 4)), min_size=2, max_size=30))
def test_an_interval_is_within_the_values_and_the_same_for_equal_data(tasks: list[tuple[float, int]]) -> None:
    sums, counts = [share * count for share, count in tasks], [count for _, count in tasks]
    found = ratio_interval(sums, counts, rate=False)
    assert found == ratio_interval(sums, counts, rate=False)
    assert found is not None
    shares = [share for share, _ in tasks]
    assert min(shares) - 1e-9 <= found.low <= found.high <= max(shares) + 1e-9
    assert math.isfinite(found.low)
