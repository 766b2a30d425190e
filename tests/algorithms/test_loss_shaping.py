"""What every policy learns from, on numbers worked by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.algorithms.loss_shaping import mean_gap, mismatched, parts, shape_step
from kernelrl_core.recipe.schema import MismatchSettings
from kernelrl_core.types.training import Loss, OptimizerSettings, TrainingSample, Update


def _step(*samples: TrainingSample, normaliser: float = 4.0, kl: float = 0.0, mismatch=None) -> Update:
    loss = Loss("ppo", 0.2, 0.28, normaliser, kl, mismatch)
    return Update(0, samples, 1, loss, OptimizerSettings(1e-3, 0.9, 0.95, 1e-8, 0.0, None))


def _sample(name: str, logprobs: tuple[float, ...], advantage: float) -> TrainingSample:
    return TrainingSample(name, (1,), (2,) * len(logprobs), logprobs, advantage)


def test_advantages_are_divided_by_the_normaliser() -> None:
    shaped = shape_step(_step(_sample("a", (-1.0, -2.0), 3.0), _sample("b", (-1.0,), -1.0)))
    assert shaped.advantages == ((0.75, 0.75), (-0.25,))  # 3 / 4 and -1 / 4
    assert shaped.metrics == {}


def test_the_kl_penalty_moves_advantage_to_tokens_nearer_the_reference() -> None:
    step = _step(_sample("a", (-1.0, -2.0), 3.0), _sample("b", (-1.0,), -1.0), kl=0.5)
    # d = [-1 - -1.3, -2 - -2, -1 - -1.6] = [0.3, 0, 0.6], mean 0.3;
    # A + 0.5 * (0.3 - d) = [3, 3.15 | -1.15], over 4.
    shaped = shape_step(step, reference=[[-1.3, -2.0], [-1.6]])
    assert shaped.advantages[0] == pytest.approx((0.75, 0.7875))
    assert shaped.advantages[1] == pytest.approx((-0.2875,))
    assert shaped.metrics["kl_reference"] == pytest.approx(0.3)


def test_a_mean_gap_of_0_0005_is_kept_and_of_0_002_rejected() -> None:
    rule = MismatchSettings()
    assert not mismatched([-1.0, -1.0], [-0.9995, -0.9995], rule)  # exp(0.0005) = 1.0005
    assert mismatched([-1.0, -1.0], [-0.998, -0.998], rule)  # exp(0.002) = 1.0020
    # The mean hides it, the token does not: exp(-10) = 4.5e-5 is below 1e-4.
    assert mismatched([-1.0, -11.0], [-11.0, -1.0], rule)
    assert not mismatched([], [], rule)


def test_rejected_samples_are_left_out_and_counted() -> None:
    step = _step(_sample("a", (-1.0,), 3.0), _sample("b", (-1.0,), -1.0), mismatch=MismatchSettings())
    shaped = shape_step(step, present=[[-1.5], [-1.0]])
    assert [sample.id for sample in shaped.samples] == ["b"]
    assert shaped.metrics == {"rejected": 0.5}


def test_the_gap_is_a_mean_over_tokens() -> None:
    assert mean_gap([[-1.0, -2.0], [-3.0]], [[-1.5, -2.0], [-2.0]]) == pytest.approx(0.5)  # (0.5 + 0 + 1) / 3
    assert mean_gap([], []) == 0


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=6), st.floats(-5, 5), st.floats(0, 2))
def test_the_kl_penalty_adds_nothing_on_the_whole(logprobs: list[float], advantage: float, kl: float) -> None:
    step = _step(_sample("a", tuple(logprobs), advantage), normaliser=1.0, kl=kl)
    row = shape_step(step, reference=[[0.0] * len(logprobs)]).advantages[0]
    assert math.fsum(row) == pytest.approx(advantage * len(logprobs), abs=1e-6)


@given(st.integers(0, 40), st.integers(1, 50))
def test_parts_are_nearly_equal_and_in_order(n: int, substeps: int) -> None:
    made = parts(list(range(n)), substeps)
    assert len(made) == min(n, substeps)
    assert [item for part in made for item in part] == list(range(n))
    sizes = [len(part) for part in made]
    assert not sizes or max(sizes) - min(sizes) <= 1
