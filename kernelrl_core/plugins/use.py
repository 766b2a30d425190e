"""A component as a recipe selects it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

__all__ = ["Use"]


@attrs.frozen
class Use:
    """A component by name. In a recipe its options stand flat, beside `use`."""

    use: str
    """Component name, or `plugin:name`."""
    options: Any = None
    """Instance of the component's config class; None: its defaults."""
    raw: Mapping[str, Any] = attrs.field(factory=dict)
    """The options as they were written, for the saved recipe."""
