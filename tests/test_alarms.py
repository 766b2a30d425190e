"""Findings that climb in a run."""

from __future__ import annotations

from kernelrl_core.alarms import Alarms, climbing


def rows(*rates: float) -> list[dict[str, float]]:
    return [{"finding/result_cache": rate, "reward/mean": 1.0} if rate else {"reward/mean": 1.0} for rate in rates]


def test_a_rate_that_doubled_is_told_with_both_rates() -> None:
    assert climbing(rows(*[0.02] * 10, 0.1)) == {}
    # Two high steps among the last five: (3 * 0.02 + 2 * 0.1) / 5 = 0.052.
    was, now = climbing(rows(*[0.02] * 10, 0.1, 0.1))["result_cache"]
    assert (round(was, 4), round(now, 4)) == (0.02, 0.052)


def test_a_run_says_it_in_words() -> None:
    alarms = Alarms()
    said = [alarms.after(row) for row in rows(*[0.0] * 9, 0.5, 0.5)]
    assert said[-2] == ["alarm: finding 'result_cache' in 10% of the samples of the last steps, 0% before"]
    assert [line for lines in (*said[:-2], said[-1]) for line in lines] == []


def test_it_is_told_once() -> None:
    assert climbing(rows(*[0.02] * 10, 0.1, 0.1, 0.1)) == {}


def test_a_rate_that_stays_is_not_told() -> None:
    assert climbing(rows(*[0.3] * 20)) == {}


def test_a_rare_finding_is_not_told() -> None:
    assert climbing(rows(*[0.0] * 10, *[0.02] * 5)) == {}


def test_the_first_steps_have_nothing_to_be_compared_with() -> None:
    assert climbing(rows(*[0.0] * 4, *[0.5] * 5)) == {}


def test_a_finding_that_is_new_is_told() -> None:
    assert set(climbing(rows(*[0.0] * 9, 0.3))) == {"result_cache"}
