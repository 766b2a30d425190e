"""The advantage estimators as components: their options, and the function each recipe gets."""

from __future__ import annotations

from functools import partial
from typing import Literal

import attrs

from kernelrl_core.algorithms import advantages
from kernelrl_core.interfaces.advantages import AdvantageConfig
from kernelrl_core.recipe.schema import PositiveFloat

__all__ = [
    "GrpoOptions",
    "PerTurnOptions",
    "TrlooOptions",
    "dr_grpo",
    "grpo",
    "per_turn",
    "rloo",
    "trloo",
]


@attrs.frozen
class GrpoOptions(AdvantageConfig):
    """Options of `grpo`."""

    std: Literal["population", "sample", "none"] = "population"
    """Deviation that centred returns are divided by: divisor N, divisor N - 1, or no division."""
    clip: PositiveFloat | None = None
    """Keep advantages between -clip and clip, such as 1.5; null: as they are."""


@attrs.frozen
class TrlooOptions(AdvantageConfig):
    """Options of `trloo`."""

    min_attempts: int = attrs.field(default=2, validator=attrs.validators.ge(2))
    """Attempts that must have reached a turn; below, the turn is compared with all turns of the other attempts."""


@attrs.frozen
class PerTurnOptions(AdvantageConfig):
    """Options of `per_turn`."""

    std: Literal["population", "sample", "none"] = "none"
    """Deviation that centred returns are divided by: divisor N, divisor N - 1, or no division."""
    min_attempts: int = attrs.field(default=2, validator=attrs.validators.ge(2))
    """Attempts that must have reached a turn; below, the turn is compared with all turns of the group."""


def grpo(options: GrpoOptions) -> advantages.Estimate:
    return partial(advantages.grpo, std=options.std, clip=options.clip)


def dr_grpo() -> advantages.Estimate:
    return advantages.dr_grpo


def rloo() -> advantages.Estimate:
    return advantages.rloo


def trloo(options: TrlooOptions) -> advantages.Estimate:
    return partial(advantages.trloo, min_attempts=options.min_attempts)


def per_turn(options: PerTurnOptions) -> advantages.Estimate:
    return partial(advantages.per_turn, std=options.std, min_attempts=options.min_attempts)
