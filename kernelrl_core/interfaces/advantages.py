"""Advantages: pure functions from the returns of a group to its advantages.

The function takes `returns[episode][turn]` of one group and returns advantages of the same shape. Equal returns must
give exactly 0. The component's implementation is a factory: the core calls it once, with the options if there are any.

`kernelrl plugins new advantages NAME` writes a sample plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from kernelrl_core.interfaces.config import ComponentConfig

__all__ = ["AdvantageConfig", "AdvantageFunction", "Returns"]

Returns: TypeAlias = Sequence[Sequence[float]]
"""`returns[episode][turn]` of one group. Rows may differ in length. The core removes masked turns before the call."""

AdvantageFunction: TypeAlias = Callable[[Returns], list[list[float]]]
"""Maps the returns of one group to advantages of the same shape. Pure; equal returns give exactly 0."""


@attrs.frozen
class AdvantageConfig(ComponentConfig):
    """Options of an advantage. The core passes them to the component's implementation, which returns the function."""
