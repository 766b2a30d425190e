"""Rewards of the stage recipes: correct above wrong, faster above slower, and a signal before any kernel is correct."""

from __future__ import annotations

import itertools

import attrs
import pytest

from kernelrl_core.environment.scoring import WeightedReward, score
from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.types import (
    BuildStatus,
    Candidate,
    Evaluation,
    Extraction,
    Outcome,
    Turn,
    Verdict,
)
from kernelrl_testing.values import make_turn

STAGES = ("stage1", "stage2", "stage3")


def _turn(outcome: Outcome, passed: int = 0, speedup: float | None = None) -> Turn:
    candidate = None if outcome is Outcome.FORMAT_ERROR else Candidate("x", "triton")
    evaluation = None
    if outcome not in (Outcome.FORMAT_ERROR, Outcome.REJECTED):
        build = BuildStatus.FAILED if outcome is Outcome.COMPILE_ERROR else BuildStatus.BUILT
        evaluation = Evaluation(outcome, build=build, tests_passed=passed, tests_total=5, speedup=speedup)
    return make_turn(
        outcome,
        extraction=Extraction(candidate),
        evaluation=evaluation,
        verdict=Verdict.HACK if outcome is Outcome.HACKED else Verdict.CLEAN,
    )


def _recipe(name: str) -> Recipe:
    # Checkers do not affect the scores; without them the tests depend on the rewards only.
    return load_recipe(name, ["checkers.source=null", "forbid=[]"], registry=registry()).recipe


def _total(recipe: Recipe, turn: Turn) -> float:
    rewards = [
        WeightedReward(name, use.weight, registry().make("rewards", use), use.options.bounds(), use.use)
        for name, use in recipe.rewards.items()
    ]
    return score(turn, rewards, recipe.verdicts).total


WRONG = [
    _turn(outcome, passed)
    for outcome, passed in itertools.product(Outcome, range(5))
    if outcome not in (Outcome.CORRECT, Outcome.INFRA_ERROR)
]


@pytest.mark.parametrize("name", STAGES)
def test_every_correct_kernel_scores_above_every_wrong_one(name: str) -> None:
    recipe = _recipe(name)
    slow = _turn(Outcome.CORRECT, 5, 0.001)
    untimed = attrs.evolve(slow, evaluation=attrs.evolve(slow.evaluation, speedup=None))
    best_wrong = max(_total(recipe, turn) for turn in WRONG)
    assert min(_total(recipe, slow), _total(recipe, untimed)) > best_wrong


@pytest.mark.parametrize("name", STAGES)
def test_the_score_of_a_correct_kernel_never_falls_with_speedup(name: str) -> None:
    recipe = _recipe(name)
    totals = [_total(recipe, _turn(Outcome.CORRECT, 5, speedup)) for speedup in (0.01, 0.5, 1, 2, 9, 10, 11, 1e6)]
    assert totals == sorted(totals)
    assert (totals[0] < totals[4]) == (name == "stage3")


@pytest.mark.parametrize("name", STAGES)
def test_a_wrong_kernel_that_builds_scores_above_one_that_does_not(name: str) -> None:
    recipe = _recipe(name)
    ladder = [_turn(Outcome.FORMAT_ERROR), _turn(Outcome.COMPILE_ERROR), _turn(Outcome.INCORRECT)]
    totals = [_total(recipe, turn) for turn in ladder]
    assert totals[0] == 0.0
    assert totals == sorted(set(totals))


@pytest.mark.parametrize(
    ("name", "incorrect", "correct"),
    [
        ("stage1", 0.3 + 0.5 + 0.2 * 0.5 * 0.6, 1.0),
        ("stage2", 0.1 + 0.2 + 0.7 * 0.5 * 0.6, 1.0),
        ("stage3", 0.05 + 0.1, 0.05 + 0.1 + 0.5 + 0.35 * 2),
    ],
)
def test_totals_worked_by_hand(name: str, incorrect: float, correct: float) -> None:
    """An incorrect kernel with three of five trials passed, and a correct kernel with speedup 2."""
    recipe = _recipe(name)
    assert _total(recipe, _turn(Outcome.INCORRECT, 3)) == pytest.approx(incorrect)
    assert _total(recipe, _turn(Outcome.CORRECT, 5, 2.0)) == pytest.approx(correct)
