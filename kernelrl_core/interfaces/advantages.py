"""Advantages: pure functions from the returns of a group to its advantages.

A function gets the returns of a group as lists and gives advantages in lists of the same shape.

    # my_plugin/__init__.py
    from kernelrl_core.api import Component, hookimpl

    @hookimpl
    def kernelrl_advantages():
        return [Component("sign", "my_plugin.sign:make")]

    # my_plugin/sign.py
    def sign(returns):
        everything = [value for episode in returns for value in episode]
        mean = sum(everything) / len(everything)
        return [[float((value > mean) - (value < mean)) for value in episode] for episode in returns]

    def make():
        return sign
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from kernelrl_core.interfaces.config import ComponentConfig

__all__ = ["AdvantageConfig", "AdvantageFunction", "Returns"]

Returns: TypeAlias = Sequence[Sequence[float]]
"""`returns[episode][turn]` of one group, ragged. Masked turns are removed by the core."""

AdvantageFunction: TypeAlias = Callable[[Returns], list[list[float]]]
"""Advantages of one group, in the shape of its returns. A pure function on lists; equal returns give exactly 0."""


@attrs.frozen
class AdvantageConfig(ComponentConfig):
    """Options of an advantage. The component's implementation is called with them and returns the function."""
