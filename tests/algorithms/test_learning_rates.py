"""Learning rates of published schedules, on numbers worked by hand."""

from __future__ import annotations

import attrs
import pytest

from kernelrl_core.algorithms.learning_rates import learning_rate
from kernelrl_core.recipe.schema import TrainSettings
from kernelrl_core.types.numbers import Fraction, NonNegativeFloat


@pytest.mark.parametrize(("step", "expected"), [(0, 2.857e-7), (6, 2e-6), (7, 2e-6), (247, 2e-6)])
def test_the_rate_rises_in_the_warm_up_and_stays(step: int, expected: float) -> None:
    settings = TrainSettings(learning_rate=NonNegativeFloat(2e-6), warmup_ratio=Fraction(0.03))
    assert learning_rate(settings, step, 248) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("schedule", "floor", "expected"),
    [
        # 10 steps, 2 of them warm-up: p = 0, 1/8, 4/8, 7/8 at the steps 2, 3, 6, 9.
        ("linear", 0.0, {0: 0.5, 1: 1.0, 2: 1.0, 3: 0.875, 6: 0.5, 9: 0.125}),
        ("linear", 0.2, {2: 1.0, 6: 0.6, 9: 0.3}),
        # (1 + cos(pi p)) / 2 = 0.96194, 0.5, 0.03806.
        ("cosine", 0.0, {0: 0.5, 2: 1.0, 3: 0.96194, 6: 0.5, 9: 0.03806}),
        ("cosine", 0.1, {2: 1.0, 6: 0.55, 9: 0.13425}),
    ],
)
def test_the_rate_falls_after_the_warm_up(schedule: str, floor: float, expected: dict[int, float]) -> None:
    settings = attrs.evolve(
        TrainSettings(learning_rate=NonNegativeFloat(1.0), warmup_ratio=Fraction(0.2)),
        learning_rate_schedule=schedule,
        learning_rate_floor=floor,
    )
    rates = {step: learning_rate(settings, step, 10) for step in expected}
    assert rates == pytest.approx(expected, abs=1e-5)


def test_a_run_of_warm_up_steps_only_has_no_decay() -> None:
    settings = TrainSettings(
        learning_rate=NonNegativeFloat(1.0), warmup_ratio=Fraction(1.0), learning_rate_schedule="cosine"
    )
    assert [learning_rate(settings, step, 4) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
