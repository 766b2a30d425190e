"""Mismatch rejection, KL penalty and loss denominator against values computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.algorithms.loss_shaping import mismatched, shape_samples, split_evenly
from kernelrl_core.recipe.schema import PositiveFloat
from kernelrl_core.types.training import MismatchSettings, TrainingSample


def _sample(name: str, logprobs: tuple[float, ...], advantage: float) -> TrainingSample:
    return TrainingSample(name, (1,), (2,) * len(logprobs), logprobs, advantage)


def test_advantages_are_divided_by_the_denominator() -> None:
    shaped = shape_samples([_sample("a", (-1.0, -2.0), 3.0), _sample("b", (-1.0,), -1.0)], 4.0)
    assert tuple(sample.advantages for sample in shaped.samples) == ((0.75, 0.75), (-0.25,))  # 3 / 4 and -1 / 4
    assert shaped.metrics == {}


def test_per_sample_also_divides_by_the_tokens_of_the_sample() -> None:
    """Two replies of 2 and 1 tokens, denominator 2: each sample has the total weight A / 2, as in GRPO and GSPO."""
    samples = [_sample("a", (-1.0, -2.0), 3.0), _sample("b", (-1.0,), -1.0), _sample("empty", (), 1.0)]
    shaped = shape_samples(samples, 2.0, per_sample=True)
    assert [sample.advantages for sample in shaped.samples] == [(0.75, 0.75), (-0.5,), ()]
    # d = [0.3, 0, 0.6], mean 0.3; A + 0.5 * (0.3 - d) = [3, 3.15 | -1.15], over 2 tokens and over 1, over 2.
    penalised = shape_samples(samples, 2.0, per_sample=True, kl=0.5, reference=[[-1.3, -2.0], [-1.6], []])
    assert penalised.samples[0].advantages == pytest.approx((0.75, 0.7875))
    assert penalised.samples[1].advantages == pytest.approx((-0.575,))


def test_kl_penalty_raises_the_advantage_of_tokens_near_the_reference_policy() -> None:
    samples = [_sample("a", (-1.0, -2.0), 3.0), _sample("b", (-1.0,), -1.0)]
    # d = [-1 - -1.3, -2 - -2, -1 - -1.6] = [0.3, 0, 0.6], mean 0.3;
    # A + 0.5 * (0.3 - d) = [3, 3.15 | -1.15], over 4.
    shaped = shape_samples(samples, 4.0, kl=0.5, reference=[[-1.3, -2.0], [-1.6]])
    assert shaped.samples[0].advantages == pytest.approx((0.75, 0.7875))
    assert shaped.samples[1].advantages == pytest.approx((-0.2875,))
    assert shaped.metrics["kl_reference"] == pytest.approx(0.3)


def test_mean_mismatch_of_0_0005_is_accepted_and_of_0_002_rejected() -> None:
    rule = MismatchSettings()
    assert not mismatched([-1.0, -1.0], [-0.9995, -0.9995], rule)  # exp(0.0005) = 1.0005
    assert mismatched([-1.0, -1.0], [-0.998, -0.998], rule)  # exp(0.002) = 1.0020
    # The mean is in bounds, but one token is not: exp(-10) = 4.5e-5 is below 1e-4.
    assert mismatched([-1.0, -11.0], [-11.0, -1.0], rule)
    assert not mismatched([], [], rule)


def test_rejected_samples_are_removed_and_counted() -> None:
    samples = [_sample("a", (-1.0,), 3.0), _sample("b", (-1.0,), -1.0)]
    shaped = shape_samples(samples, 4.0, mismatch=MismatchSettings(), current=[[-1.5], [-1.0]])
    assert [sample.id for sample in shaped.samples] == ["b"]
    assert shaped.metrics == {"rejected": 0.5}


def test_kl_penalty_subtracts_the_mean_over_samples_that_were_not_rejected() -> None:
    samples = [_sample("a", (-1.0,), 3.0), _sample("b", (-1.0, -2.0), 1.0)]
    shaped = shape_samples(
        samples,
        1.0,
        mismatch=MismatchSettings(),
        current=[[-1.5], [-1.0, -2.0]],
        kl=1.0,
        reference=[[-9.0], [-1.2, -2.4]],
    )
    # d = [0.2, 0.4] from the second sample only, mean 0.3: 1 + 0.3 - d.
    assert shaped.samples[0].advantages == pytest.approx((1.1, 0.9))
    assert shaped.metrics["kl_reference"] == pytest.approx(0.3)


def test_truncated_importance_weights_multiply_the_advantages() -> None:
    """p_sampler 0.5 and 0.1, p_trainer 0.25 and 0.4: ratios 0.5 and 4, truncated to 0.5 and 2; A = 3 over 4."""
    sample = _sample("a", (math.log(0.5), math.log(0.1)), 3.0)
    trainer = [math.log(0.25), math.log(0.4)]
    shaped = shape_samples([sample], 4.0, current=[trainer], importance_cap=2.0)
    assert shaped.samples[0].advantages == pytest.approx((0.375, 1.5))
    assert shaped.samples[0].sampler_logprobs == tuple(trainer)  # the ratio of the loss is to p_trainer
    assert shaped.metrics == pytest.approx(
        {"importance_weight_mean": 1.25, "importance_truncated": 0.5, "mismatch": (math.log(2) + math.log(4)) / 2}
    )


def test_importance_weights_follow_rejection_and_the_kl_penalty() -> None:
    samples = [_sample("a", (-1.0,), 3.0), _sample("b", (-1.0, -2.0), 1.0)]
    wide = MismatchSettings(sequence_low=PositiveFloat(0.5), sequence_high=PositiveFloat(1.5))
    shaped = shape_samples(
        samples,
        1.0,
        mismatch=wide,
        current=[[-3.0], [-1.0 + math.log(1.1), -2.0]],
        kl=1.0,
        reference=[[-9.0], [-1.2, -2.4]],
        importance_cap=2.0,
    )
    # b alone is left: d = [0.2, 0.4], A + 0.3 - d = [1.1, 0.9], times the weights 1.1 and 1.
    assert shaped.samples[0].advantages == pytest.approx((1.21, 0.9))


def test_a_huge_ratio_is_truncated() -> None:
    shaped = shape_samples([_sample("a", (-2000.0,), 1.0)], 1.0, current=[[-1.0]], importance_cap=2.0)
    assert shaped.samples[0].advantages == pytest.approx((2.0,))


def test_missing_log_probabilities_raise() -> None:
    with pytest.raises(ValueError, match="require `current`"):
        shape_samples([_sample("a", (-1.0,), 3.0)], 1.0, mismatch=MismatchSettings())
    with pytest.raises(ValueError, match="requires `reference`"):
        shape_samples([_sample("a", (-1.0,), 3.0)], 1.0, kl=0.5)


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=6), st.floats(-5, 5), st.floats(0, 2))
def test_kl_penalty_terms_sum_to_zero(logprobs: list[float], advantage: float, kl: float) -> None:
    samples = [_sample("a", tuple(logprobs), advantage)]
    row = shape_samples(samples, 1.0, kl=kl, reference=[[0.0] * len(logprobs)]).samples[0].advantages
    assert math.fsum(row) == pytest.approx(advantage * len(logprobs), abs=1e-6)


@given(st.integers(0, 40), st.integers(1, 50))
def test_split_evenly_gives_consecutive_parts_of_nearly_equal_size(n: int, substeps: int) -> None:
    parts = split_evenly(list(range(n)), substeps)
    assert len(parts) == min(n, substeps)
    assert [item for part in parts for item in part] == list(range(n))
    sizes = [len(part) for part in parts]
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_shaped_sample_keeps_id_tokens_and_sampler_log_probabilities() -> None:
    sample = TrainingSample("a", (7, 8), (5, 6), (-0.5, -0.25), 3.0)
    (shaped,) = shape_samples([sample], 2.0).samples
    assert (shaped.id, shaped.prompt_tokens, shaped.tokens) == ("a", (7, 8), (5, 6))
    assert (shaped.sampler_logprobs, shaped.advantages) == ((-0.5, -0.25), (1.5, 1.5))


def test_shaped_sample_keeps_its_temperature() -> None:
    sample = TrainingSample("a", (7, 8), (5, 6), (-0.5, -0.25), 3.0, 0.7)
    assert shape_samples([sample], 2.0).samples[0].temperature == 0.7


def test_log_probabilities_without_their_setting_change_nothing() -> None:
    """Without `mismatch` nothing is rejected, and with `kl` 0 nothing is penalised, whatever the log-probabilities."""
    samples = [_sample("a", (-1.0,), 3.0)]
    shaped = shape_samples(samples, 4.0, current=[[-9.0]], kl=0.0, reference=[[-9.0]])
    assert shaped == shape_samples(samples, 4.0)


@pytest.mark.parametrize(("current", "rejected"), [(-1.0, 0.0), (-1.5, 1.0)])
def test_rejected_fraction_of_one_sample(current: float, rejected: float) -> None:
    shaped = shape_samples([_sample("a", (-1.0,), 3.0)], 1.0, mismatch=MismatchSettings(), current=[[current]])
    assert shaped.metrics == {"rejected": rejected}
    assert len(shaped.samples) == 1 - rejected


def test_kl_penalty_of_a_single_token_is_zero() -> None:
    """d = -1 - -1.5 = 0.5 is its own mean: A + 0.5 * (0.5 - 0.5) = 3."""
    shaped = shape_samples([_sample("a", (-1.0,), 3.0)], 1.0, kl=0.5, reference=[[-1.5]])
    assert shaped.samples[0].advantages == (3.0,)
    assert shaped.metrics == {"kl_reference": 0.5}


def test_empty_step_has_no_samples() -> None:
    shaped = shape_samples([], 1.0, mismatch=MismatchSettings(), current=[], kl=0.5, reference=[])
    assert shaped.samples == ()
    assert shaped.metrics["kl_reference"] == 0.0


@pytest.mark.parametrize("logprobs", [[-1.0], [-1.0, -1.0, -1.0]])
def test_log_probabilities_of_a_wrong_length_raise(logprobs: list[float]) -> None:
    with pytest.raises(ValueError, match="zip"):
        shape_samples([_sample("a", (-1.0, -1.0), 3.0)], 1.0, kl=0.5, reference=[logprobs])
    with pytest.raises(ValueError, match="zip"):
        mismatched([-1.0, -1.0], logprobs, MismatchSettings())


def test_bounds_of_the_mismatch_are_inclusive() -> None:
    """Ratio exp(0) = 1 for bounds from 1 to 1, and a token ratio of exactly 0.5 with `token_min` 0.5."""
    exact = MismatchSettings(sequence_low=PositiveFloat(1.0), sequence_high=PositiveFloat(1.0))
    assert not mismatched([-1.0], [-1.0], exact)
    rule = MismatchSettings(sequence_low=PositiveFloat(0.1), token_min=PositiveFloat(0.5))
    assert not mismatched([0.0], [math.log(0.5)], rule)
    assert mismatched([0.0], [math.log(0.49)], rule)
    # Geometric mean of the ratios 0.25 and 1: 0.5.
    assert mismatched([0.0, 0.0], [math.log(0.25), 0.0], MismatchSettings(sequence_low=PositiveFloat(0.51)))


@pytest.mark.parametrize(("n", "sizes"), [(1, [7]), (2, [4, 3]), (3, [3, 2, 2]), (9, [1] * 7)])
def test_sizes_of_parts_of_seven_items(n: int, sizes: list[int]) -> None:
    assert [len(part) for part in split_evenly(list(range(7)), n)] == sizes


def test_nothing_is_split_into_no_parts() -> None:
    assert split_evenly([], 3) == []
