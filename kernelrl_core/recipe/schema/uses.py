"""Components that a recipe chooses."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.plugins.use import Use
from kernelrl_core.types.numbers import PositiveInt

__all__ = ["RetrieverUse", "RewardUse"]


@attrs.frozen
class RewardUse(Use):
    """A reward component and its weight."""

    weight: float = 1.0
    """Factor of the component's score."""


@attrs.frozen
class RetrieverUse(Use):
    """A retriever and how many examples it contributes."""

    k: PositiveInt = PositiveInt(3)
    """Examples per prompt."""
    turns: Literal["first", "all"] = "first"
    """Turns whose prompt shows them."""
