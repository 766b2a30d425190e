"""Returns and advantage estimators against values computed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.algorithms import advantages, estimators
from kernelrl_core.algorithms.advantages import discounted_returns, dr_grpo, grpo, per_turn, rloo, trloo
from kernelrl_core.recipe.schema import PositiveFloat

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


def test_grpo_compares_all_turns_of_all_episodes() -> None:
    assert near(dr_grpo(KEVIN), [[-0.35, 0.43], [-0.87, -0.87], [1.03, 0.63]])
    assert near(grpo(KEVIN), [[-0.4734, 0.5817], [-1.1769, -1.1769], [1.3933, 0.8522]])


def test_clip_limits_the_advantage_of_an_outlier() -> None:
    """[0, 0, 0, 0, 50]: mean 10, variance (4 * 100 + 1600) / 5 = 400, so (0 - 10) / 20 = -0.5, (50 - 10) / 20 = 2."""
    lucky = [[0.0], [0.0], [0.0], [0.0], [50.0]]
    assert near(grpo(lucky), [[-0.5]] * 4 + [[2.0]])
    assert near(grpo(lucky, clip=1.5), [[-0.5]] * 4 + [[1.5]])
    assert near(grpo(lucky, clip=0.25), [[-0.25]] * 4 + [[0.25]])


def test_dr_grpo_is_rloo_times_one_minus_one_over_n() -> None:
    """1 - 1/N = 3/4 for four episodes: -1.3333 * 3/4 = -1.0 (Dr. Kernel, arXiv 2602.05885)."""
    assert near([[value * 3 / 4 for value in row] for row in rloo(ONE_TURN)], dr_grpo(ONE_TURN))


def test_trloo_compares_with_the_same_turn_of_other_episodes() -> None:
    assert near(trloo([[1.3, 1.3], [0.0, 0.0], [2.8, 1.5]]), [[-0.1, 0.55], [-2.05, -1.4], [2.15, 0.85]])
    assert near(trloo(KEVIN), [[-0.43, 0.55], [-1.21, -1.4], [1.64, 0.85]])


def test_one_mean_for_all_turns_lowers_advantages_of_late_turns() -> None:
    alike = [discounted_returns([1.3] * 4, 0.4, "sum")] * 4
    assert near(dr_grpo(alike), [[0.2964, 0.2132, 0.0052, -0.5148]] * 4)
    assert per_turn(alike) == trloo(alike) == [[0.0] * 4] * 4


def test_turns_that_few_episodes_reached_compare_with_all_turns() -> None:
    """Only one episode has a second turn; it is compared with all turns, or with those of the other episode."""
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
def test_rounding_differences_give_advantage_zero(estimate: advantages.Estimate) -> None:
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


@pytest.mark.parametrize("estimate", ESTIMATORS)
@pytest.mark.parametrize(
    ("values", "equal"),
    [
        ((0.0, 1e-13), True),  # absolute tolerance 1e-12
        ((0.0, 1e-11), False),
        ((1000.0, 1000.0 + 1e-7), True),  # relative tolerance 1e-9, here 1e-6
        ((1000.0, 1000.0 + 1e-5), False),
    ],
)
def test_returns_within_the_tolerance_count_as_equal(
    estimate: advantages.Estimate, values: tuple[float, float], equal: bool
) -> None:
    rows = estimate([[value] for value in values])
    assert (rows == [[0.0], [0.0]]) is equal


LUCKY = [[0.0], [0.0], [0.0], [0.0], [50.0]]
RAGGED = [[0.0, 1.0], [1.0, 3.0], [2.0]]


@pytest.mark.parametrize(
    ("build", "returns", "expected"),
    [
        # R - mean = -10 and 40, limited to 1.5.
        (
            lambda: estimators.grpo(estimators.GrpoOptions(std="none", clip=PositiveFloat(1.5))),
            LUCKY,
            [[-1.5]] * 4 + [[1.5]],
        ),
        # Sample deviation sqrt(2000 / 4) = 22.3607: -10 / 22.3607 and 40 / 22.3607.
        (lambda: estimators.grpo(estimators.GrpoOptions(std="sample")), LUCKY, [[-0.4472]] * 4 + [[1.7889]]),
        (lambda: estimators.grpo(estimators.GrpoOptions()), LUCKY, [[-0.5]] * 4 + [[2.0]]),
        # Turn 2 has two episodes: compared with each other, or, below min_attempts 3, with all turns of the others:
        # 1 - (1 + 3 + 2) / 3 = -1 and 3 - (0 + 1 + 2) / 3 = 2. Turn 1: 0 - 3/2, 1 - 2/2, 2 - 1/2.
        (lambda: estimators.trloo(estimators.TrlooOptions()), RAGGED, [[-1.5, -2.0], [0.0, 2.0], [1.5]]),
        (lambda: estimators.trloo(estimators.TrlooOptions(min_attempts=3)), RAGGED, [[-1.5, -1.0], [0.0, 2.0], [1.5]]),
        # Turn 1: mean 1, population deviation sqrt(2/3) = 0.8165; turn 2: mean 2, deviation 1. With min_attempts 3,
        # turn 2 is compared with all turns: mean 1.4, deviation sqrt(5.2 / 5) = 1.0198.
        (
            lambda: estimators.per_turn(estimators.PerTurnOptions(std="population")),
            RAGGED,
            [[-1.2247, -1.0], [0.0, 1.0], [1.2247]],
        ),
        (
            lambda: estimators.per_turn(estimators.PerTurnOptions(std="population", min_attempts=3)),
            RAGGED,
            [[-1.2247, -0.3922], [0.0, 1.5689], [1.2247]],
        ),
        (lambda: estimators.per_turn(estimators.PerTurnOptions()), RAGGED, [[-1.0, -1.0], [0.0, 1.0], [1.0]]),
        (estimators.dr_grpo, RAGGED, [[-1.4, -0.4], [-0.4, 1.6], [0.6]]),
        # The others of episode 1: mean 2; of episode 2: mean 1; of episode 3: mean 1.25.
        (estimators.rloo, RAGGED, [[-2.0, -1.0], [0.0, 2.0], [0.75]]),
    ],
)
def test_options_of_the_bundled_estimators(
    build: Callable[[], advantages.Estimate], returns: list[list[float]], expected: list[list[float]]
) -> None:
    assert near(build()(returns), expected)


@pytest.mark.parametrize("options", [estimators.TrlooOptions, estimators.PerTurnOptions])
def test_min_attempts_below_two_is_refused(options: Any) -> None:
    with pytest.raises(ValueError, match="min_attempts"):
        options(min_attempts=1)


def test_min_attempts_below_two_counts_as_two() -> None:
    """The second turn has no other episode: compared with all turns, 3 - 4/3, or with the other episode, 3 - 0."""
    ragged = [[0.0], [1.0, 3.0]]
    assert near(per_turn(ragged, min_attempts=0), [[-0.5], [0.5, 3.0 - 4 / 3]])
    assert near(trloo(ragged, min_attempts=0), [[-1.0], [1.0, 3.0]])
