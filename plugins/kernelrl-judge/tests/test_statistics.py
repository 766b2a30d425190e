"""Statistics of run times."""

from __future__ import annotations

import pytest

from kernelrl_judge.timing.statistics import interval_of_ratio, settled, summarise


def test_a_summary_has_median_and_percentiles() -> None:
    found = summarise([float(value) for value in range(1, 102)])
    assert (found.median_us, found.p10_us, found.p90_us, found.n) == (51.0, 11.0, 91.0, 101)
    assert found.ci95_us[0] < 51.0 < found.ci95_us[1]


def test_equal_samples_have_an_interval_without_width() -> None:
    assert summarise([7.0] * 20).ci95_us == (7.0, 7.0)


def test_a_drift_of_both_sides_does_not_widen_the_interval_of_the_speedup() -> None:
    candidate = [10.0 + drift for drift in range(40)]
    low, high = interval_of_ratio([2 * value for value in candidate], candidate)
    assert (low, high) == (pytest.approx(2.0), pytest.approx(2.0))


def test_samples_settle_when_their_spread_is_small() -> None:
    assert settled([100.0 + (index % 3) * 0.1 for index in range(30)], 0.01)
    assert not settled([100.0 + (index % 7) * 10 for index in range(30)], 0.01)
    assert not settled([100.0, 100.0, 100.0], 0.01)
