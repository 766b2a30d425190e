"""Contradictions, which every rule reports: values of a recipe that exclude each other."""

from __future__ import annotations

import attrs

from kernelrl_core.recipe.merge import Merged
from kernelrl_core.recipe.problems import Problem

__all__ = ["Contradiction"]


@attrs.frozen
class Contradiction:
    """Values of a recipe that exclude each other."""

    path: tuple[str, ...]
    """The value to change."""
    message: str
    hint: str = ""
    missing: bool = False
    """The fix is an installation, not a change of the recipe."""

    def problem(self, merged: Merged) -> Problem:
        """The mistake with its file and line."""
        return Problem(merged.origin(self.path), ".".join(self.path), self.message, self.hint, self.missing)
