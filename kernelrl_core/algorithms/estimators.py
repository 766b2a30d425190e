"""The bundled advantage components: options, and the factories that bind them to `algorithms.advantages`."""

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
    """Divisor of R - mean: standard deviation with N, standard deviation with N - 1, or 1."""
    clip: PositiveFloat | None = None
    """Limits advantages to [-clip, clip], such as 1.5; null: no limit."""


@attrs.frozen
class TrlooOptions(AdvantageConfig):
    """Options of `trloo`."""

    min_attempts: int = attrs.field(default=2, validator=attrs.validators.ge(2))
    """A turn that fewer episodes of the group reached is compared with all turns of the other episodes."""


@attrs.frozen
class PerTurnOptions(AdvantageConfig):
    """Options of `per_turn`."""

    std: Literal["population", "sample", "none"] = "none"
    """Divisor of R - mean: standard deviation with N, standard deviation with N - 1, or 1."""
    min_attempts: int = attrs.field(default=2, validator=attrs.validators.ge(2))
    """A turn that fewer episodes of the group reached is compared with all turns of the group."""


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
