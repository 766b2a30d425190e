"""Returns and estimators against numbers worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.algorithms import advantages
from kernelrl_core.algorithms.advantages import discounted_returns, dr_grpo, grpo, per_turn, rloo, trloo

ONE_TURN = [[0.0], [0.3], [1.3], [2.4]]
KEVIN = [[0.52, 1.3], [0.0, 0.0], [1.9, 1.5]]
ESTIMATORS = [grpo, dr_grpo, rloo, trloo, per_turn]


def near(rows: list[list[float]], expected: list[list[float]], digits: float = 1e-4) -> bool:
    return [len(r) for r in rows] == [len(r) for r in expected] and all(
        abs(a - b) < digits for row, want in zip(rows, expected, strict=True) for a, b in zip(row, want, strict=True)
    )


@pytest.mark.parametrize(
    ("scores", "gamma", "aggregate", "expected"),
    [
        ([0, 0, 1.3, 1.5], 0.4, "sum", [0.304, 0.76, 1.9, 1.5]),
        ([0, 0, 1.3, 1.5], 0.4, "max", [0.208, 0.52, 1.3, 1.5]),
        ([0, 0, 1.3, 1.5], 0.8, "sum", [1.6, 2.0, 2.5, 1.5]),
        ([0, 0, 1.3, 1.5], 0.8, "max", [0.832, 1.04, 1.3, 1.5]),
        ([0.2, 0.3, 0.8, 1], 0.4, "sum", [0.512, 0.78, 1.2, 1.0]),
        ([0.2, 0.3, 0.8, 1], 0.4, "max", [0.2, 0.32, 0.8, 1.0]),
        ([0.2, 0.3, 0.8, 1], 0.8, "sum", [1.464, 1.58, 1.6, 1.0]),
        ([0.2, 0.3, 0.8, 1], 0.8, "max", [0.512, 0.64, 0.8, 1.0]),
        ([], 0.4, "sum", []),
        ([-1.0, -0.5], 0.4, "max", [-0.2, -0.5]),
    ],
)
def test_returns(scores: list[float], gamma: float, aggregate: str, expected: list[float]) -> None:
    assert discounted_returns(scores, gamma, aggregate) == pytest.approx(expected)


def test_unknown_aggregate_is_refused() -> None:
    with pytest.raises(ValueError, match="mean"):
        discounted_returns([1.0], 0.5, "mean")


@given(st.lists(st.floats(-10, 10), max_size=6), st.floats(0, 1))
def test_maximum_is_the_definition(scores: list[float], gamma: float) -> None:
    found = discounted_returns(scores, gamma, "max")
    direct = [max(gamma ** (i - t) * scores[i] for i in range(t, len(scores))) for t in range(len(scores))]
    assert found == pytest.approx(direct)


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (lambda r: grpo(r, std="population"), [-1.0630, -0.7441, 0.3189, 1.4882]),
        (lambda r: grpo(r, std="sample"), [-0.9206, -0.6444, 0.2762, 1.2888]),
        (lambda r: grpo(r, std="none"), [-1.0, -0.7, 0.3, 1.4]),
        (dr_grpo, [-1.0, -0.7, 0.3, 1.4]),
        (rloo, [-1.3333, -0.9333, 0.4, 1.8667]),
        (trloo, [-1.3333, -0.9333, 0.4, 1.8667]),
        (per_turn, [-1.0, -0.7, 0.3, 1.4]),
    ],
)
def test_one_turn(estimate: advantages.Estimate, expected: list[float]) -> None:
    assert near(estimate(ONE_TURN), [[value] for value in expected])


def test_grpo_takes_all_turns_of_all_attempts_as_one_group() -> None:
    assert near(dr_grpo(KEVIN), [[-0.35, 0.43], [-0.87, -0.87], [1.03, 0.63]])
    assert near(grpo(KEVIN), [[-0.4734, 0.5817], [-1.1769, -1.1769], [1.3933, 0.8522]])


def test_clipped_advantages_bound_a_lucky_kernel() -> None:
    """[0, 0, 0, 0, 50]: mean 10, variance (4 * 100 + 1600) / 5 = 400, so (0 - 10) / 20 = -0.5, (50 - 10) / 20 = 2."""
    lucky = [[0.0], [0.0], [0.0], [0.0], [50.0]]
    assert near(grpo(lucky), [[-0.5]] * 4 + [[2.0]])
    assert near(grpo(lucky, clip=1.5), [[-0.5]] * 4 + [[1.5]])
    assert near(grpo(lucky, clip=0.25), [[-0.25]] * 4 + [[0.25]])


def test_a_group_mean_that_holds_the_sample_itself_shrinks_the_signal_by_one_part_in_n() -> None:
    """1 - 1/N = 3/4 for four attempts: -1.3333 * 3/4 = -1.0 (Dr. Kernel, arXiv 2602.05885)."""
    assert near([[value * 3 / 4 for value in row] for row in rloo(ONE_TURN)], dr_grpo(ONE_TURN))


def test_trloo_compares_equal_turns_of_the_others() -> None:
    assert near(trloo([[1.3, 1.3], [0.0, 0.0], [2.8, 1.5]]), [[-0.1, 0.55], [-2.05, -1.4], [2.15, 0.85]])
    assert near(trloo(KEVIN), [[-0.43, 0.55], [-1.21, -1.4], [1.64, 0.85]])


def test_late_correct_turns_are_punished_unless_turns_have_their_own_baseline() -> None:
    alike = [discounted_returns([1.3] * 4, 0.4, "sum")] * 4
    assert near(dr_grpo(alike), [[0.2964, 0.2132, 0.0052, -0.5148]] * 4)
    assert per_turn(alike) == trloo(alike) == [[0.0] * 4] * 4


def test_a_turn_that_few_attempts_reached_falls_back() -> None:
    """Only one attempt has a second turn, so that turn is compared with all turns, or with all turns of the others."""
    ragged = [[0.0], [1.0, 3.0]]
    assert near(per_turn(ragged), [[-0.5], [0.5, 3.0 - 4 / 3]])
    assert near(trloo(ragged), [[-1.0], [1.0, 3.0]])
    three = [[0.0, 1.0], [1.0, 3.0], [2.0]]
    assert near(per_turn(three, min_attempts=3), [[-1.0, 1.0 - 1.4], [0.0, 3.0 - 1.4], [1.0]])


@pytest.mark.parametrize("estimate", ESTIMATORS)
@given(value=st.floats(-1e3, 1e3), lengths=st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_equal_returns_have_advantage_zero(estimate: advantages.Estimate, value: float, lengths: list[int]) -> None:
    returns = [[value] * n for n in lengths]
    assert estimate(returns) == [[0.0] * n for n in lengths]


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_rounding_makes_no_signal(estimate: advantages.Estimate) -> None:
    assert not any(row[0] for row in estimate([[0.1 + 0.2], [0.3], [0.3]]))


@pytest.mark.parametrize("estimate", ESTIMATORS)
@given(returns=st.lists(st.lists(st.floats(-10, 10), min_size=1, max_size=4), min_size=1, max_size=6))
def test_shape_is_kept_and_input_unchanged(estimate: advantages.Estimate, returns: list[list[float]]) -> None:
    before = [list(row) for row in returns]
    assert [len(row) for row in estimate(returns)] == [len(row) for row in returns]
    assert returns == before


def test_estimators_are_components_of_the_core() -> None:
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.plugins.use import Use

    for name in ("grpo", "dr_grpo", "rloo", "trloo", "per_turn"):
        cls = registry().config_class("advantages", name)
        estimate = registry().make("advantages", Use(name, cls() if cls else None))
        assert estimate([[1.0], [1.0]]) == [[0.0], [0.0]]
