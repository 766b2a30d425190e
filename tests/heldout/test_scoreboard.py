"""pass@k, fast_p and intervals against values computed by hand."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.heldout.intervals import wilson_interval
from kernelrl_core.heldout.scoreboard import measures, pass_at_k, scoreboard
from kernelrl_core.recipe.schema import EvalSettings, NonNegativeFloat, PositiveInt
from kernelrl_core.types import (
    Episode,
    Evaluation,
    Group,
    Outcome,
    Task,
    Turn,
    Verdict,
)
from kernelrl_testing.values import make_turn

SETTINGS = EvalSettings(
    pass_at=(PositiveInt(1), PositiveInt(2)),
    fast_thresholds=tuple(NonNegativeFloat(p) for p in (0.0, 1.0, 1.2, 2.0)),
)


def turn(outcome: Outcome, speedup: float | None = None) -> Turn:
    return make_turn(outcome, evaluation=Evaluation(outcome, speedup=speedup))


RIGHT, WRONG, LOST = Outcome.CORRECT, Outcome.INCORRECT, Outcome.INFRA_ERROR


def group(*attempts: list[Turn]) -> Group:
    return Group(Task("t", "r"), tuple(Episode(tuple(turns)) for turns in attempts))


@pytest.mark.parametrize(
    ("n", "correct", "k", "expected"),
    [(4, 2, 1, 0.5), (4, 2, 2, 5 / 6), (4, 0, 2, 0.0), (4, 3, 2, 1.0), (5, 1, 5, 1.0), (10, 3, 5, 1 - 21 / 252)],
)
def test_pass_at_k(n: int, correct: int, k: int, expected: float) -> None:
    assert pass_at_k(n, correct, k) == pytest.approx(expected)


def test_the_settings_name_every_result() -> None:
    assert sorted(SETTINGS.result_names()) == sorted(measures([group([turn(RIGHT, 1.5)])], SETTINGS))


def test_pass_at_k_needs_k_samples() -> None:
    with pytest.raises(ValueError, match="pass@3"):
        pass_at_k(2, 1, 3)


def test_wilson_interval() -> None:
    """5 of 10: (0.5 + 0.19207) / 1.38415 = 0.5, half-width 0.26342."""
    assert wilson_interval(0.5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson_interval(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)


def test_fast_p_counts_all_episodes() -> None:
    board = scoreboard(
        [group([turn(RIGHT, 1.5)], [turn(WRONG)]), group([turn(RIGHT, 0.8)], [turn(RIGHT, 3.0)])], SETTINGS
    )
    assert (board["fast_0"], board["fast_1"], board["fast_1.2"], board["fast_2"]) == (0.75, 0.5, 0.5, 0.25)
    assert board["pass@1"] == 0.75
    assert board["pass@2"] == 1.0
    assert board["geometric_mean_speedup"] == pytest.approx((1.5 * 0.8 * 3.0) ** (1 / 3))
    assert board["outcomes"]["correct"] == 3
    assert not board["reasons"]


def test_speedup_of_a_suspect_counts_as_at_most_one() -> None:
    """Counted speedups 1 (suspect, 50 measured), 0.5 (suspect) and 1.5, one episode wrong.

    fast_1 = 1/4 and the geometric mean is (1 * 0.5 * 1.5) ** (1/3); as measured 2/4 and (50 * 0.5 * 1.5) ** (1/3).
    """
    suspects = [[attrs.evolve(turn(RIGHT, x), verdict=Verdict.SUSPECT)] for x in (50.0, 0.5)]
    board = scoreboard([group(*suspects, [turn(RIGHT, 1.5)], [turn(WRONG)])], SETTINGS)
    assert (board["fast_0"], board["fast_1"], board["fast_2"]) == (0.75, 0.25, 0.0)
    assert (board["fast_1_as_measured"], board["fast_2_as_measured"]) == (0.5, 0.25)
    assert board["geometric_mean_speedup"] == pytest.approx(0.75 ** (1 / 3))
    assert board["geometric_mean_speedup_as_measured"] == pytest.approx(37.5 ** (1 / 3))
    assert "fast_0_as_measured" not in board


def test_clean_turn_represents_an_episode_with_a_faster_suspect_one() -> None:
    suspect = attrs.evolve(turn(RIGHT, 50.0), verdict=Verdict.SUSPECT)
    board = scoreboard([group([suspect, turn(RIGHT, 1.5)])], SETTINGS)
    assert board["geometric_mean_speedup"] == pytest.approx(1.5)
    assert board["geometric_mean_speedup_as_measured"] == pytest.approx(50.0)


def test_unmeasured_speedup_is_null_with_a_reason() -> None:
    board = scoreboard([group([turn(RIGHT)], [turn(WRONG)])], SETTINGS)
    assert board["fast_0"] == 0.5
    assert board["fast_1"] is None
    assert "not measured for 1 of 1" in board["reasons"]["fast_1"]


def test_policy_without_correct_episodes_has_fast_p_zero() -> None:
    board = scoreboard([group([turn(WRONG)])], SETTINGS)
    assert board["fast_1"] == 0.0
    assert board["pass@2"] is None
    assert "fewer than 2" in board["reasons"]["pass@2"]


def test_episode_counts_once() -> None:
    board = scoreboard([group([turn(WRONG), turn(RIGHT, 2.5), turn(WRONG)])], SETTINGS)
    assert (board["num_samples"], board["pass@1"], board["fast_2"]) == (1, 1.0, 1.0)


def test_lost_episodes_are_counted_separately() -> None:
    board = scoreboard([group([turn(LOST)], [turn(RIGHT, 1.0)])], SETTINGS)
    assert (board["num_lost"], board["num_samples"], board["pass@1"]) == (1, 1, 1.0)


def test_empty_scoreboard_is_null() -> None:
    board = scoreboard([group([turn(LOST)])], attrs.evolve(SETTINGS))
    assert board["pass@1"] is None
    assert board["fast_0"] is None
    assert board["correct_rate"] is None


def test_fast_p_equals_that_of_kernelbench() -> None:
    """Six samples with baseline and candidate times, four of them correct, with speedups 2, 1, 0.5 and 1.25.

    KernelBench divides the number of correct samples with a speedup above p by the number of all samples: 4/6 for
    p = 0, 2/6 for p = 1 (a speedup of exactly 1 does not count), 2/6 for p = 1.2, 0 for p = 2.
    """
    times = ((10.0, 5.0), (3.0, 3.0), (2.0, 4.0), (5.0, 4.0), (8.0, 1.0), (10.0, 1.0))
    right = (True, True, True, True, False, False)
    board = scoreboard(
        [
            group([turn(RIGHT if is_right else WRONG, baseline / candidate if is_right else None)])
            for is_right, (baseline, candidate) in zip(right, times, strict=True)
        ],
        SETTINGS,
    )
    fast = [board[f"fast_{p}"] for p in ("0", "1", "1.2", "2")]
    assert fast == pytest.approx([4 / 6, 2 / 6, 2 / 6, 0.0])


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0.1, 100.0), st.floats(0.1, 100.0)), min_size=1, max_size=40),
    st.lists(st.sampled_from([0.0, 0.5, 0.8, 1.0, 1.5, 2.0, 5.0]), min_size=1, unique=True),
)
def test_fast_p_is_the_fraction_of_correct_episodes_above_p(
    samples: list[tuple[bool, float, float]], thresholds: list[float]
) -> None:
    groups = [group([turn(RIGHT if right else WRONG, base / time if right else None)]) for right, base, time in samples]
    board = scoreboard(groups, attrs.evolve(SETTINGS, fast_thresholds=tuple(map(NonNegativeFloat, thresholds))))
    for p in thresholds:
        faster = sum(base / time > p for right, base, time in samples if right)
        assert board[f"fast_{p:g}"] == pytest.approx(faster / len(samples))


def test_hack_gap_is_the_fraction_of_failed_verifications() -> None:
    held, failed = (attrs.evolve(turn(RIGHT, 1.0), verified=value) for value in (True, False))
    board = scoreboard([group([held], [held], [failed], [turn(RIGHT, 1.0)], [turn(WRONG)])], SETTINGS)
    assert board["hack_gap"] == pytest.approx(1 / 3)
    assert "hack_gap" not in scoreboard([group([turn(RIGHT, 1.0)])], SETTINGS)
