"""Components that break their contract, one module per kind; modules, so that another process can import them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

EVERY = "*"
"""All tests of the kind."""
UNMADE = ("declares_what_its_kind_requires", EVERY)
"""Failing tests of a component that cannot be made."""


@attrs.frozen
class Broken:
    """A component, and the tests of its contract that must fail."""

    kind: str
    target: str
    """Implementation as `module.attribute` of this package."""
    fails: frozenset[str] = attrs.field(converter=frozenset)
    """Names of the tests without `test_`; empty: a component that fulfils the contract."""
    config: str = ""
    """Options class, likewise."""
    attributes: Mapping[str, Any] = attrs.field(factory=dict)
    """Attributes of the contract class, such as `options`."""

    @property
    def id(self) -> str:
        options = self.attributes.get("options")
        return f"{self.kind}-{self.target.rpartition('.')[2]}{options or ''}"
