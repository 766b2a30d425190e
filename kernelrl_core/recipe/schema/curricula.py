"""What changes while a run learns."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.types.numbers import PositiveFloat, PositiveInt

__all__ = ["Advance", "CurriculumSettings", "CurriculumStage", "Difficulty"]


@attrs.frozen
class Advance:
    """When a stage has done its work."""

    above: float
    """Least mean of the metric …"""
    over: PositiveInt = PositiveInt(5)
    """… over the last so many steps, all of the stage."""
    metric: Literal[
        "kernel/format_rate",
        "kernel/compile_rate",
        "kernel/correct_rate",
        "multiturn/success_rate",
        "multiturn/best_speedup_mean",
        "reward/mean",
    ] = "kernel/correct_rate"
    """Metric of the steps that is looked at."""


@attrs.frozen
class CurriculumStage:
    """A part of a run with tasks, tolerances or rewards of its own."""

    levels: tuple[int, ...] | None = None
    """Levels whose tasks are worked on; null: every task."""
    until: Advance | None = None
    """The stage ends when this is reached."""
    max_steps: PositiveInt | None = None
    """The stage ends after so many steps at the latest."""
    atol: PositiveFloat | None = None
    """Absolute tolerance in training; null: that of `evaluation`."""
    rtol: PositiveFloat | None = None
    """Relative tolerance in training; null: that of `evaluation`."""
    trials: PositiveInt | None = None
    """Correctness trials in training; null: those of `evaluation`."""
    weights: dict[str, float] = attrs.field(factory=dict)
    """Weights of rewards, by their names; the others keep theirs."""


@attrs.frozen
class Difficulty:
    """Draw tasks by the chance that their attempts will differ."""

    groups: PositiveInt = PositiveInt(4)
    """Newest groups of a task that are remembered."""
    sharpness: PositiveFloat = PositiveFloat(2.0)
    """Power of the chance that a task is drawn by: larger avoids groups without a signal more."""
    solved: Literal["avoid", "keep"] = "avoid"
    """Whether groups that are all right are avoided as well as those that are all wrong; `keep` where speed is paid."""


@attrs.frozen
class CurriculumSettings:
    """What changes while a run learns. Held-out evaluations stay as `evaluation` and `rewards` say."""

    stages: tuple[CurriculumStage, ...] = ()
    """In order; the last one lasts to the end."""
    difficulty: Difficulty | None = None
    """Draw tasks by what was measured; null: in turn."""
