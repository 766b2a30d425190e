"""Which samples are trained on, and what the loss is divided by."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import attrs
import pytest
from value_builders import make_turn

from kernelrl_core.algorithms.advantages import grpo, trloo
from kernelrl_core.algorithms.credit import (
    Credit,
    assign_credit,
    coverage_keep_probability,
    loss_denominator,
    training_samples,
)
from kernelrl_core.recipe.schema import (
    CoverageRejection,
    Fraction,
    NonNegativeFloat,
    PositiveInt,
    ReturnSettings,
    TrainSettings,
)
from kernelrl_core.types import (
    Candidate,
    Episode,
    Evaluation,
    Extraction,
    Group,
    Outcome,
    Prompt,
    Reply,
    SampleId,
    Score,
    Task,
    Turn,
)

TASK = Task("t", "reference")


def turn(attempt: int, number: int, score: float, *, correct: bool = False, share: float | None = None) -> Turn:
    outcome = Outcome.CORRECT if correct else Outcome.INCORRECT
    return make_turn(
        outcome,
        id=SampleId(0, 0, attempt, number),
        task=TASK,
        prompt=Prompt((), (1,)),
        reply=Reply("", (1, 2, 3), (0.0, 0.0, 0.0), "stop"),
        extraction=Extraction(Candidate("x", "triton")),
        evaluation=Evaluation(outcome, own_kernel_share=share),
        score=Score(score),
    )


def test_kevin_from_scores_to_advantages() -> None:
    """Scores [0, 1.3], [0, 0], [1.3, 1.5], gamma 0.4, sum: returns [0.52, 1.3], [0, 0], [1.9, 1.5], mean 0.87,
    population deviation 0.7393; so (0.52 - 0.87) / 0.7393 = -0.4734, and so on (arXiv 2507.11948)."""
    scores = [[0.0, 1.3], [0.0, 0.0], [1.3, 1.5]]
    group = Group(TASK, tuple(Episode(tuple(turn(i, j, s) for j, s in enumerate(row))) for i, row in enumerate(scores)))
    batch = assign_credit([group], grpo, ReturnSettings(Fraction(0.4)), TrainSettings(), 0)
    assert [credit.return_ for credit in batch] == pytest.approx([0.52, 1.3, 0, 0, 1.9, 1.5])
    expected = [-0.4734, 0.5817, -1.1769, -1.1769, 1.3933, 0.8522]
    assert [credit.advantage for credit in batch] == pytest.approx(expected, abs=1e-4)
    undiscounted = assign_credit([group], trloo, ReturnSettings(), TrainSettings(), 0)
    expected = [-0.1, 0.55, -2.05, -1.4, 2.15, 0.85]
    assert [credit.advantage for credit in undiscounted] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("length_norm", "divisor"),
    [("tokens", 12), ("none", 4), ("max_tokens", 4 * 22528), (16384, 4 * 16384)],
)
def test_what_the_summed_loss_is_divided_by(length_norm: Any, divisor: float) -> None:
    """Four samples of 3 tokens, 22,528 tokens allowed: 4 * 3, 4, 4 L with L following, 4 L with L constant."""
    group = Group(TASK, tuple(Episode((turn(i, 0, float(i)),)) for i in range(4)))
    train = TrainSettings(length_norm=length_norm)
    batch = assign_credit([group], grpo, ReturnSettings(), train, 0)
    assert loss_denominator(batch, train, 22528, None) == divisor


def test_each_optimizer_step_is_divided_by_its_part_of_the_batch() -> None:
    """Four samples in two substeps: each sums two samples, so 2 L of 4 L."""
    train = TrainSettings(length_norm=PositiveInt(100), substeps=PositiveInt(2))
    batch = [Credit(turn(i, 0, 1.0), return_=1.0, advantage=1.0) for i in range(4)]
    assert loss_denominator(batch, train, 50, None) == 200


def test_a_constant_length_makes_an_advantage_small() -> None:
    """A = 1.03 and L = 16384 for a single sample: 1.03 / 16384 = 6.29e-5 per token (Kevin)."""
    batch = [Credit(turn(0, 0, 1.0), return_=1.0, advantage=1.03)]
    train = TrainSettings(length_norm=PositiveInt(16384))
    assert 1.03 / loss_denominator(batch, train, 22528, None) == pytest.approx(6.29e-5, rel=1e-3)


@pytest.mark.parametrize(
    ("share", "ramp", "expected"),
    [
        (0.35, 0.1, 0.5),
        (0.3, 0.1, 0.0),
        (0.1, 0.1, 0.0),
        (0.4, 0.1, 1.0),
        (0.9, 0.1, 1.0),
        (0.3, 0, 0.0),
        (0.31, 0, 1.0),
    ],
)
def test_probability_of_keeping_a_lazy_kernel(share: float, ramp: float, expected: float) -> None:
    """clip((share - 0.3) / 0.1, 0, 1): (0.35 - 0.3) / 0.1 = 0.5 (arXiv 2602.05885)."""
    settings = CoverageRejection(ramp=NonNegativeFloat(ramp))
    assert coverage_keep_probability(share, settings) == pytest.approx(expected)


def test_lazy_kernels_are_left_out_after_the_advantages_and_wrong_ones_stay() -> None:
    turns = [
        turn(0, 0, 0.0, share=0.0),  # wrong: stays
        turn(1, 0, 1.0, correct=True, share=0.01),
        turn(2, 0, 1.0, correct=True, share=0.9),
        turn(3, 0, 1.0, correct=True),  # nobody profiled it
    ]
    group = Group(TASK, tuple(Episode((one,)) for one in turns))
    train = TrainSettings(coverage_rejection=CoverageRejection())
    assign = partial(assign_credit, [group], grpo, ReturnSettings())
    batch = assign(train, 0)
    assert [credit.exclusion_reason for credit in batch] == ["", "low_coverage", "", ""]
    whole = assign(attrs.evolve(train, coverage_rejection=None), 0)
    assert [credit.advantage for credit in batch] == [credit.advantage for credit in whole]
    assert [sample.id for sample in training_samples(batch)] == ["0.0.0.0", "0.0.2.0", "0.0.3.0"]
    assert batch[1].row()["filtered"] is True
    assert batch[1].row()["reason"] == "low_coverage"


def test_the_draw_follows_the_seed_and_the_probability() -> None:
    """At a share of 0.35 half are kept: of 400 between 160 and 240, four standard deviations of sqrt(400 / 4) = 10."""
    turns = [turn(i, 0, float(i % 2), correct=True, share=0.35) for i in range(400)]
    group = Group(TASK, tuple(Episode((one,)) for one in turns))
    train = TrainSettings(coverage_rejection=CoverageRejection())
    drawn = [
        [c.exclusion_reason for c in assign_credit([group], grpo, ReturnSettings(), train, seed)] for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert 160 < Counter(drawn[0])[""] < 240
