"""Components that a recipe chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from kernelrl_core.types.numbers import PositiveInt

__all__ = ["RetrieverUse", "RewardUse", "Use"]


@attrs.frozen
class Use:
    """A component by name. In a recipe its options stand flat, beside `use`."""

    use: str
    """Component name, or `plugin:name`."""
    options: Any = None
    """Instance of the component's config class, or None when it has none."""
    raw: Mapping[str, Any] = attrs.field(factory=dict)
    """The options as they were written, for the saved recipe."""


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
