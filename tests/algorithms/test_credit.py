"""Credit of training samples, and the loss denominator."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import attrs
import pytest

from kernelrl_core.algorithms.advantages import dr_grpo, grpo, trloo
from kernelrl_core.algorithms.credit import (
    Credit,
    assign_credit,
    coverage_keep_probability,
    loss_denominator,
    planned_samples,
    training_samples,
)
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.schema import (
    CoverageRejection,
    EpisodeSettings,
    Fraction,
    NonNegativeFloat,
    PositiveInt,
    Recipe,
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
from kernelrl_core.types.seeds import derived_seed
from kernelrl_testing.values import make_turn

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


def test_kevin_scores_give_the_advantages_of_the_formula() -> None:
    """Scores [0, 1.3], [0, 0], [1.3, 1.5], gamma 0.4, sum: returns [0.52, 1.3], [0, 0], [1.9, 1.5], mean 0.87,
    population deviation 0.7393; (0.52 - 0.87) / 0.7393 = -0.4734 (arXiv 2507.11948)."""
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
    [("tokens", 12), ("per_sample", 4), ("none", 4), ("max_tokens", 4 * 22528), (16384, 4 * 16384)],
)
def test_loss_denominator(length_norm: Any, divisor: float) -> None:
    """Four samples of 3 tokens, reply limit 22,528: 4 * 3; 4; 4; 4 times the limit; 4 times the constant."""
    group = Group(TASK, tuple(Episode((turn(i, 0, float(i)),)) for i in range(4)))
    train = TrainSettings(length_norm=length_norm)
    batch = assign_credit([group], grpo, ReturnSettings(), train, 0)
    assert loss_denominator(batch, train, 22528, None) == divisor


@pytest.mark.parametrize(("ratio", "divisor"), [("token", 12), ("sequence", 4), ("sequence_sum", 12)])
def test_loss_with_one_term_per_reply_is_averaged_over_replies(ratio: Any, divisor: float) -> None:
    """Four samples of 3 tokens with `length_norm: tokens`: 12 terms, but 4 terms where a reply has one."""
    batch = [Credit(turn(i, 0, 1.0), return_=1.0, advantage=1.0) for i in range(4)]
    assert loss_denominator(batch, TrainSettings(ratio=ratio), 50, None) == divisor


def test_loss_denominator_is_divided_by_substeps() -> None:
    """Four samples in two substeps: each optimizer step sums two samples, so 4 L / 2."""
    train = TrainSettings(length_norm=PositiveInt(100), substeps=PositiveInt(2))
    batch = [Credit(turn(i, 0, 1.0), return_=1.0, advantage=1.0) for i in range(4)]
    assert loss_denominator(batch, train, 50, None) == 200


def test_constant_length_norm_of_kevin() -> None:
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
def test_coverage_keep_probability(share: float, ramp: float, expected: float) -> None:
    """clip((share - 0.3) / 0.1, 0, 1): (0.35 - 0.3) / 0.1 = 0.5 (arXiv 2602.05885)."""
    settings = CoverageRejection(ramp=NonNegativeFloat(ramp))
    assert coverage_keep_probability(share, settings) == pytest.approx(expected)


def test_low_coverage_is_filtered_after_the_advantages_and_only_for_correct_kernels() -> None:
    turns = [
        turn(0, 0, 0.0, share=0.0),  # incorrect: kept
        turn(1, 0, 1.0, correct=True, share=0.01),
        turn(2, 0, 1.0, correct=True, share=0.9),
        turn(3, 0, 1.0, correct=True),  # not profiled: kept
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


def test_random_coverage_filter_follows_seed_and_probability() -> None:
    """A share of 0.35 keeps half: 200 of 400, plus or minus four standard deviations of sqrt(400 / 4) = 10."""
    turns = [turn(i, 0, float(i % 2), correct=True, share=0.35) for i in range(400)]
    group = Group(TASK, tuple(Episode((one,)) for one in turns))
    train = TrainSettings(coverage_rejection=CoverageRejection())
    drawn = [
        [c.exclusion_reason for c in assign_credit([group], grpo, ReturnSettings(), train, seed)] for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert 160 < Counter(drawn[0])[""] < 240


def lost(attempt: int, number: int) -> Turn:
    """A turn lost to an infrastructure error."""
    return make_turn(Outcome.INFRA_ERROR, id=SampleId(0, 0, attempt, number), task=TASK)


def group_of(*episodes: tuple[Turn, ...]) -> Group:
    return Group(TASK, tuple(Episode(turns) for turns in episodes))


@pytest.mark.parametrize(
    ("gamma", "reasons", "returns", "advantages"),
    [
        # Group mean (4 + 0 + 2) / 3 = 2. The lost turn hides the rest of its episode's discounted sum.
        (0.5, ["incomplete", "infra_error", "", "", ""], [None, None, 4, 0, 2], [None, None, 2, -2, 0]),
        # Without discounting of later scores the first turn keeps its own return: (1 + 4 + 0 + 2) / 4 = 1.75.
        (0.0, ["", "infra_error", "", "", ""], [1, None, 4, 0, 2], [-0.75, None, 2.25, -1.75, 0.25]),
    ],
)
def test_lost_turn_masks_earlier_turns_of_its_episode_if_returns_are_discounted(
    gamma: float, reasons: list[str], returns: list[float | None], advantages: list[float | None]
) -> None:
    group = group_of((turn(0, 0, 1.0), lost(0, 1)), (turn(1, 0, 4.0),), (turn(2, 0, 0.0),), (turn(3, 0, 2.0),))
    batch = assign_credit([group], dr_grpo, ReturnSettings(Fraction(gamma)), TrainSettings(), 0)
    assert [str(credit.turn.id) for credit in batch] == ["0.0.0.0", "0.0.0.1", "0.0.1.0", "0.0.2.0", "0.0.3.0"]
    assert [credit.exclusion_reason for credit in batch] == reasons
    assert [credit.return_ for credit in batch] == returns
    assert [credit.advantage for credit in batch] == advantages


def test_lost_turn_masks_later_turns_of_its_episode_too() -> None:
    """The other episodes are compared without the incomplete one: mean (3 + 1) / 2 = 2."""
    episode = (turn(0, 0, 1.0), lost(0, 1), turn(0, 2, 1.0))
    group = group_of(episode, (turn(1, 0, 3.0),), (turn(2, 0, 1.0),))
    batch = assign_credit([group], dr_grpo, ReturnSettings(Fraction(1.0)), TrainSettings(), 0)
    assert [credit.exclusion_reason for credit in batch] == ["incomplete", "infra_error", "incomplete", "", ""]
    assert [credit.advantage for credit in batch] == [None, None, None, 1.0, -1.0]


@pytest.mark.parametrize(
    ("least", "reasons"), [(2, ["infra_error", "", ""]), (3, ["infra_error"] + ["small_group"] * 2)]
)
def test_group_with_fewer_valid_episodes_than_the_minimum_is_masked(least: int, reasons: list[str]) -> None:
    """Two of three episodes are valid: enough for a minimum of 2, too few for 3."""
    group = group_of((lost(0, 0),), (turn(1, 0, 1.0),), (turn(2, 0, 3.0),))
    train = TrainSettings(min_group_size=PositiveInt(least))
    batch = assign_credit([group], dr_grpo, ReturnSettings(), train, 0)
    assert [str(credit.turn.id) for credit in batch] == ["0.0.0.0", "0.0.1.0", "0.0.2.0"]
    assert [credit.exclusion_reason for credit in batch] == reasons
    assert [credit.masked for credit in batch] == [bool(reason) for reason in reasons]


@pytest.mark.parametrize(
    ("scores", "drop", "reason"),
    [((2.0, 2.0), True, "uniform"), ((2.0, 2.0), False, ""), ((1.0, 3.0), True, "")],
)
def test_group_is_filtered_if_all_advantages_are_zero(scores: tuple[float, float], drop: bool, reason: str) -> None:
    group = group_of(*((turn(i, 0, one),) for i, one in enumerate(scores)))
    train = TrainSettings(drop_uniform_groups=drop)
    batch = assign_credit([group], dr_grpo, ReturnSettings(), train, 0)
    assert [credit.exclusion_reason for credit in batch] == [reason] * 2
    assert [credit.return_ for credit in batch] == list(scores)
    assert not any(credit.masked for credit in batch)
    assert len(training_samples(batch)) == (0 if reason else 2)
    # Two samples of 3 tokens; filtered samples count.
    assert loss_denominator(batch, train, 100, None) == 6


@pytest.mark.parametrize("advantages", [[[1.0]], [[1.0], [1.0, 2.0]]])
def test_estimator_that_changes_the_shape_raises(advantages: list[list[float]]) -> None:
    group = group_of((turn(0, 0, 1.0),), (turn(1, 0, 3.0),))
    with pytest.raises(ValueError, match="zip"):
        assign_credit([group], lambda returns: advantages, ReturnSettings(), TrainSettings(), 0)


@pytest.mark.parametrize(
    ("credit", "expected"),
    [
        (
            Credit(turn(1, 2, 0.5), 0.75, -0.25),
            {
                "reward": 0.5,
                "return": 0.75,
                "advantage": -0.25,
                "speedup": None,
                "masked": False,
                "filtered": False,
                "reason": "",
            },
        ),
        (
            Credit(turn(1, 2, 0.5), 0.75, 0.0, "uniform"),
            {
                "reward": 0.5,
                "return": 0.75,
                "advantage": 0.0,
                "speedup": None,
                "masked": False,
                "filtered": True,
                "reason": "uniform",
            },
        ),
        (
            Credit(turn(1, 2, 0.5), exclusion_reason="small_group"),
            {
                "reward": 0.5,
                "return": None,
                "advantage": None,
                "speedup": None,
                "masked": True,
                "filtered": False,
                "reason": "small_group",
            },
        ),
        (
            Credit(lost(1, 2), exclusion_reason="infra_error"),
            {
                "reward": None,
                "return": None,
                "advantage": None,
                "speedup": None,
                "masked": True,
                "filtered": False,
                "reason": "infra_error",
            },
        ),
    ],
)
def test_row_of_a_credit(credit: Credit, expected: dict[str, Any]) -> None:
    where = SampleId(7, 0, 1, 2)
    credit = attrs.evolve(credit, turn=attrs.evolve(credit.turn, id=where))
    assert credit.row() == {"sample": "7.0.1.2", "step": 7} | expected


def test_training_sample_has_the_tokens_of_its_turn() -> None:
    one = attrs.evolve(turn(0, 0, 1.0), prompt=Prompt((), (7, 8)), reply=Reply("", (5, 6), (-0.5, -0.25), "stop"))
    (sample,) = training_samples([Credit(one, 1.0, 1.5), Credit(lost(1, 0), exclusion_reason="infra_error")])
    assert (sample.id, sample.prompt_tokens, sample.tokens) == ("0.0.0.0", (7, 8), (5, 6))
    assert (sample.sampler_logprobs, sample.advantage) == ((-0.5, -0.25), 1.5)


@pytest.mark.parametrize(("stop", "planned"), [("never", 3 * 4 * 2), ("correct", None)])
def test_planned_samples(stop: Any, planned: int | None) -> None:
    """3 tasks, 4 episodes each, 2 turns each: 24, unless an episode may stop early."""
    recipe = Recipe(
        tasks=Use("fake"),
        backend=Use("fake"),
        policy=Use("fake"),
        rewards={},
        episode=EpisodeSettings(turns=PositiveInt(2), stop=stop),
        train=TrainSettings(group_size=PositiveInt(4)),
    )
    assert planned_samples(recipe, 3) == planned


@pytest.mark.parametrize(
    ("length_norm", "planned", "substeps", "denominator"),
    [
        ("none", 6, 1, 6),
        ("none", None, 1, 2),
        ("max_tokens", 6, 1, 6 * 50),
        (PositiveInt(100), 6, 3, 200),
        ("tokens", 6, 1, 6),  # 2 samples of 3 tokens: the masked one is not counted
    ],
)
def test_loss_denominator_counts_planned_samples(
    length_norm: Any, planned: int | None, substeps: int, denominator: float
) -> None:
    """Two samples of 3 tokens and a masked one, in a step with 6 planned samples and a reply limit of 50."""
    batch = [Credit(turn(i, 0, 1.0), 1.0, 1.0) for i in range(2)]
    batch.append(Credit(turn(2, 0, 1.0), exclusion_reason="small_group"))
    train = TrainSettings(length_norm=length_norm, substeps=PositiveInt(substeps))
    assert loss_denominator(batch, train, 50, planned) == denominator


def test_loss_denominator_of_an_empty_step_is_one_per_substep() -> None:
    assert loss_denominator([], TrainSettings(substeps=PositiveInt(4)), 50, None) == 0.25


def test_random_coverage_filter_uses_the_seed_of_each_sample() -> None:
    """A share of 0.35 keeps a sample if its uniform number is below 0.5, in all versions (resumed runs)."""
    turns = [turn(i, 0, float(i), correct=True, share=0.35) for i in range(20)]
    train = TrainSettings(coverage_rejection=CoverageRejection())
    batch = assign_credit([group_of(*((one,) for one in turns))], grpo, ReturnSettings(), train, 3)
    uniform = [derived_seed(3, "coverage", f"0.0.{i}.0") / 2**63 for i in range(20)]
    assert [credit.exclusion_reason == "" for credit in batch] == [number < 0.5 for number in uniform]
