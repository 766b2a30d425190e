"""The running value of a chain, and the demands and effects of a part.

A chain of arbitrary parts often has an output that is constant, pure rounding noise or infinite: the sum of a softmax,
the exponential of a square. Each part therefore states which values it accepts, and the grammar chains only parts that
accept each other's values.
"""

from __future__ import annotations

from typing import Literal

import attrs

__all__ = ["DRAWN", "Demand", "Effect", "Value"]

Sign = Literal["+", "-", "±"]
Size = Literal["narrow", "unit", "mid", "wide", "big"]
"""Magnitude, and how much it varies: `narrow`: a function of it would hardly vary, such as probabilities; `unit`: at
most 1, with maxima that hardly differ between rows; `mid`: like normally distributed numbers; `wide`: with rare large
values; `big`: grows along the row."""

Mark = Literal["shifted", "scaled", "settled", "normed"]
"""`shifted`, `scaled`: a number for each row was added to it or multiplied with it, and nothing has depended on it yet.
`settled`: a row operation has just fixed a sum or an extremum of each row. `normed`: an earlier one had, and only
elementwise functions followed, so that a reduction is almost the same for all rows."""


@attrs.frozen
class Value:
    """The running value of a chain."""

    sign: Sign
    size: Size
    marks: frozenset[Mark] = frozenset()


DRAWN = Value("±", "mid")
"""The value that a chain begins with: normally distributed."""


@attrs.frozen
class Demand:
    """The values that a part accepts."""

    signs: str
    """The accepted signs, such as `±+`."""
    sizes: tuple[Size, ...]
    forbids: frozenset[Mark] = frozenset()

    def accepts(self, value: Value) -> bool:
        """Whether the part may follow a value."""
        return value.sign in self.signs and value.size in self.sizes and not self.forbids & value.marks


@attrs.frozen
class Effect:
    """The change of a value by a part."""

    sign: Sign | None = None
    """Sign of the result; None: as before."""
    sizes: dict[Size, Size] = attrs.field(factory=dict)
    """Size of the result by that of the value; the others stay."""
    clears: frozenset[Mark] = frozenset(("shifted", "scaled", "settled", "normed"))
    sets: frozenset[Mark] = frozenset()
    keeps: str = ""
    """Signs that remain although `sign` is another one."""

    def of(self, value: Value) -> Value:
        """The value after the part."""
        sign = value.sign if self.sign is None or value.sign in self.keeps else self.sign
        size = self.sizes.get(value.size, value.size)
        return Value(sign, size, (value.marks - self.clears) | self.sets)
