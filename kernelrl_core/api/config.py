"""Options of components: the base class, number ranges, and what a plugin may ask of this machine."""

from __future__ import annotations

from kernelrl_core.interfaces.config import ComponentConfig, MachineFact
from kernelrl_core.interfaces.requirements import Requires, gpu_vendors
from kernelrl_core.storage import cache_directory
from kernelrl_core.types.numbers import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

__all__ = [
    "ComponentConfig",
    "Fraction",
    "MachineFact",
    "NonNegativeFloat",
    "NonNegativeInt",
    "PositiveFloat",
    "PositiveInt",
    "Requires",
    "cache_directory",
    "gpu_vendors",
]
