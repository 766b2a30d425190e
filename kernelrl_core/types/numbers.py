"""Number types with a range, for options."""

from __future__ import annotations

from typing import NewType

__all__ = ["Fraction", "NonNegativeFloat", "NonNegativeInt", "PositiveFloat", "PositiveInt"]

PositiveInt = NewType("PositiveInt", int)
"""1 or more."""
NonNegativeInt = NewType("NonNegativeInt", int)
"""0 or more."""
PositiveFloat = NewType("PositiveFloat", float)
"""Above 0."""
NonNegativeFloat = NewType("NonNegativeFloat", float)
"""0 or more."""
Fraction = NewType("Fraction", float)
"""From 0 to 1, both inclusive."""
