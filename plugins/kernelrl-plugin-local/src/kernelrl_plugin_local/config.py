"""Options of the evaluator `local`."""

from __future__ import annotations

import attrs

from kernelrl_core.recipe.schema import PositiveInt

__all__ = ["LocalConfig"]


@attrs.frozen
class LocalConfig:
    """How much of this machine is used."""

    workers: PositiveInt | None = None
    """Candidates judged at once, each with a judge of its own; null: one per processor core."""
