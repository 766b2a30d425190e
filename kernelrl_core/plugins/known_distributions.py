"""The bundled distribution that provides a component, for messages with the command that installs it.

The core uses these names in messages only. The table is generated: `python scripts/known_distributions.py`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["default_components", "distribution_of", "known_distributions"]


def distribution_of(kind: str, name: str) -> str:
    """The bundled distribution of a component; empty if none provides it."""
    found: str = _table()["components"].get(kind, {}).get(name, "")
    return found


def default_components(kind: str) -> tuple[str, ...]:
    """The bundled components that are the defaults of a kind."""
    return tuple(_table()["defaults"].get(kind, ()))


def known_distributions() -> frozenset[str]:
    """The bundled distributions that provide components."""
    return frozenset(
        distribution for components in _table()["components"].values() for distribution in components.values()
    )


@functools.cache
def _table() -> Mapping[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return table
