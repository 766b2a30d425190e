"""Recipe keys of the curriculum: stages, and task selection by difficulty."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.types.numbers import PositiveFloat, PositiveInt

__all__ = ["Advance", "CurriculumSettings", "CurriculumStage", "Difficulty"]


@attrs.frozen
class Advance:
    """Condition that ends a curriculum stage: the mean of a metric over recent steps."""

    above: float
    """The stage ends when the mean reaches this value."""
    over: PositiveInt = PositiveInt(5)
    """Number of recent steps in the mean; all of them belong to the stage."""
    metric: Literal[
        "kernel/format_rate",
        "kernel/compile_rate",
        "kernel/correct_rate",
        "multiturn/success_rate",
        "multiturn/best_speedup_mean",
        "reward/mean",
    ] = "kernel/correct_rate"
    """Metric of the steps."""


@attrs.frozen
class CurriculumStage:
    """Part of a curriculum with its own tasks, tolerances or reward weights."""

    levels: tuple[int, ...] | None = None
    """Train on tasks of these levels. Null: every task."""
    until: Advance | None = None
    """Condition that ends the stage. Null: only `max_steps` ends it."""
    max_steps: PositiveInt | None = None
    """Maximum steps of the stage. Null: only `until` ends it."""
    atol: PositiveFloat | None = None
    """Absolute tolerance in training. Null: that of `evaluation`."""
    rtol: PositiveFloat | None = None
    """Relative tolerance in training. Null: that of `evaluation`."""
    trials: PositiveInt | None = None
    """Correctness trials in training. Null: those of `evaluation`."""
    weights: dict[str, float] = attrs.field(factory=dict)
    """Weight by reward name, such as `{speed: 0.0}`. Rewards that are not named keep their weights."""


@attrs.frozen
class Difficulty:
    """Draw tasks by the estimated probability c that the episodes of their next group differ in correctness."""

    groups: PositiveInt = PositiveInt(4)
    """Most recent groups of a task that the estimate uses."""
    sharpness: PositiveFloat = PositiveFloat(2.0)
    """Exponent of the sampling weight c^sharpness. A larger value avoids groups without a signal more strongly."""
    solved: Literal["avoid", "keep"] = "avoid"
    """Treatment of groups whose episodes are all correct: `avoid` them, like groups that are all wrong, or `keep` them,
    for recipes that reward speed."""


@attrs.frozen
class CurriculumSettings:
    """Changes of tasks, tolerances and rewards during a run. Held-out evaluation ignores them."""

    stages: tuple[CurriculumStage, ...] = ()
    """Stages in order; the last one lasts until the end of the run."""
    difficulty: Difficulty | None = None
    """Draw tasks by measured difficulty. Null: in the order of `train.shuffle`."""
