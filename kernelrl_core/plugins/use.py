"""Selection of a component in a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["Use"]


@attrs.frozen
class Use:
    """A component by name, with its options. In a recipe the options are keys next to `use`."""

    use: str
    """Component name, or `plugin:name`."""
    options: Any = None
    """Instance of the component's config class; None: all defaults."""
    raw: Mapping[str, Any] = attrs.field(factory=dict)
    """The options as written in the recipe, for the saved recipe."""
