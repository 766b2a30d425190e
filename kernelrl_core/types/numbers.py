"""Number types with a range, for options."""

from __future__ import annotations

from typing import NewType

__all__ = ["Fraction", "NonNegativeFloat", "NonNegativeInt", "PositiveFloat", "PositiveInt"]

PositiveInt = NewType("PositiveInt", int)
NonNegativeInt = NewType("NonNegativeInt", int)
PositiveFloat = NewType("PositiveFloat", float)
NonNegativeFloat = NewType("NonNegativeFloat", float)
Fraction = NewType("Fraction", float)
"""From 0 to 1, both inclusive."""
