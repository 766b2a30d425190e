"""What every policy learns from, on numbers worked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.algorithms.loss_shaping import mismatched, shape_samples, split_evenly
from kernelrl_core.types.training import MismatchSettings, TrainingSample


def _sample(name: str, logprobs: tuple[float, ...], advantage: float) -> TrainingSample:
    return TrainingSample(name, (1,), (2,) * len(logprobs), logprobs, advantage)


def test_advantages_are_divided_by_the_denominator() -> None:
    shaped = shape_samples([_sample("a", (-1.0, -2.0), 3.0), _sample("b", (-1.0,), -1.0)], 4.0)
    assert tuple(sample.advantages for sample in shaped.samples) == ((0.75, 0.75), (-0.25,))  # 3 / 4 and -1 / 4
    assert shaped.metrics == {}


def test_the_kl_penalty_moves_advantage_to_tokens_nearer_the_reference() -> None:
    samples = [_sample("a", (-1.0, -2.0), 3.0), _sample("b", (-1.0,), -1.0)]
    # d = [-1 - -1.3, -2 - -2, -1 - -1.6] = [0.3, 0, 0.6], mean 0.3;
    # A + 0.5 * (0.3 - d) = [3, 3.15 | -1.15], over 4.
    shaped = shape_samples(samples, 4.0, kl=0.5, reference=[[-1.3, -2.0], [-1.6]])
    assert shaped.samples[0].advantages == pytest.approx((0.75, 0.7875))
    assert shaped.samples[1].advantages == pytest.approx((-0.2875,))
    assert shaped.metrics["kl_reference"] == pytest.approx(0.3)


def test_a_mean_gap_of_0_0005_is_kept_and_of_0_002_rejected() -> None:
    rule = MismatchSettings()
    assert not mismatched([-1.0, -1.0], [-0.9995, -0.9995], rule)  # exp(0.0005) = 1.0005
    assert mismatched([-1.0, -1.0], [-0.998, -0.998], rule)  # exp(0.002) = 1.0020
    # The mean hides it, the token does not: exp(-10) = 4.5e-5 is below 1e-4.
    assert mismatched([-1.0, -11.0], [-11.0, -1.0], rule)
    assert not mismatched([], [], rule)


def test_rejected_samples_are_left_out_and_counted() -> None:
    samples = [_sample("a", (-1.0,), 3.0), _sample("b", (-1.0,), -1.0)]
    shaped = shape_samples(samples, 4.0, mismatch=MismatchSettings(), current=[[-1.5], [-1.0]])
    assert [sample.id for sample in shaped.samples] == ["b"]
    assert shaped.metrics == {"rejected": 0.5}


def test_the_kl_penalty_is_centred_over_the_samples_that_were_not_rejected() -> None:
    samples = [_sample("a", (-1.0,), 3.0), _sample("b", (-1.0, -2.0), 1.0)]
    shaped = shape_samples(
        samples,
        1.0,
        mismatch=MismatchSettings(),
        current=[[-1.5], [-1.0, -2.0]],
        kl=1.0,
        reference=[[-9.0], [-1.2, -2.4]],
    )
    # d = [0.2, 0.4] of the second sample alone, mean 0.3: 1 + 0.3 - d.
    assert shaped.samples[0].advantages == pytest.approx((1.1, 0.9))
    assert shaped.metrics["kl_reference"] == pytest.approx(0.3)


def test_log_probabilities_that_are_needed_must_be_given() -> None:
    with pytest.raises(ValueError, match="log-probabilities"):
        shape_samples([_sample("a", (-1.0,), 3.0)], 1.0, mismatch=MismatchSettings())
    with pytest.raises(ValueError, match="log-probabilities"):
        shape_samples([_sample("a", (-1.0,), 3.0)], 1.0, kl=0.5)


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=6), st.floats(-5, 5), st.floats(0, 2))
def test_the_kl_penalty_adds_nothing_on_the_whole(logprobs: list[float], advantage: float, kl: float) -> None:
    samples = [_sample("a", tuple(logprobs), advantage)]
    row = shape_samples(samples, 1.0, kl=kl, reference=[[0.0] * len(logprobs)]).samples[0].advantages
    assert math.fsum(row) == pytest.approx(advantage * len(logprobs), abs=1e-6)


@given(st.integers(0, 40), st.integers(1, 50))
def test_parts_are_nearly_equal_and_in_order(n: int, substeps: int) -> None:
    made = split_evenly(list(range(n)), substeps)
    assert len(made) == min(n, substeps)
    assert [item for part in made for item in part] == list(range(n))
    sizes = [len(part) for part in made]
    assert not sizes or max(sizes) - min(sizes) <= 1
