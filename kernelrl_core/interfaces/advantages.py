'''Advantages: pure functions from the returns of a group to its advantages.

The function takes `returns[episode][turn]` of one group and returns advantages of the same shape. Equal returns must
give exactly 0. The component's implementation is a factory: the core calls it once, with the options if there are any.

    # src/kernelrl_plugin_median_sign/__init__.py
    """Advantage `median_sign` for kernelrl."""

    from kernelrl_core.api import Component, hookimpl


    @hookimpl
    def kernelrl_advantages() -> list[Component]:
        return [
            Component(
                "median_sign",
                target="kernelrl_plugin_median_sign.advantage:make",
                config="kernelrl_plugin_median_sign.options:MedianSignConfig",
                summary="Sign of the return minus the median of the group",
            )
        ]

    # src/kernelrl_plugin_median_sign/options.py
    """Options of the advantage `median_sign`."""

    import attrs

    from kernelrl_core.api.advantages import AdvantageConfig
    from kernelrl_core.api.config import PositiveFloat


    @attrs.frozen
    class MedianSignConfig(AdvantageConfig):
        """Options."""

        scale: PositiveFloat = PositiveFloat(1.0)
        """Advantage of a return above the median."""

    # src/kernelrl_plugin_median_sign/advantage.py
    """The advantage `median_sign`."""

    from statistics import median

    from kernelrl_core.api.advantages import AdvantageFunction, Returns
    from kernelrl_plugin_median_sign.options import MedianSignConfig


    def make(config: MedianSignConfig) -> AdvantageFunction:
        """The function that the core calls for each group."""

        def advantages(returns: Returns) -> list[list[float]]:
            middle = median(value for episode in returns for value in episode)
            return [[config.scale * ((value > middle) - (value < middle)) for value in episode] for episode in returns]

        return advantages

    # tests/test_median_sign.py
    """Contract and values of the advantage `median_sign`."""

    from kernelrl_core.testing.contracts import AdvantageContract
    from kernelrl_plugin_median_sign.advantage import make
    from kernelrl_plugin_median_sign.options import MedianSignConfig


    class TestContract(AdvantageContract):
        component = "median_sign"


    def test_returns_above_and_below_the_median_differ_in_sign() -> None:
        assert make(MedianSignConfig())([[1.0, 3.0], [0.0], [1.0]]) == [[0.0, 1.0], [-1.0], [0.0]]

In a recipe:

    advantage: {use: median_sign, scale: 0.5}
'''

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
