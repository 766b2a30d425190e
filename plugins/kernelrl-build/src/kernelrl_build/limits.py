"""Limits of an extension and of the stored texts of its sources. `docs/building.md` documents them."""

from __future__ import annotations

__all__ = ["MAX_EXTENSION_MIB", "MAX_HIDDEN_CHARACTERS"]

MAX_EXTENSION_MIB = 64
"""Size of an extension: hundreds of times the size of a kernel."""
MAX_HIDDEN_CHARACTERS = 1 << 18
"""Characters of the texts that a candidate built and its source does not show, all together: the ones that are stored
and searched."""
