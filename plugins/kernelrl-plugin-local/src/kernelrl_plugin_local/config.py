"""Options of the evaluator `local`."""

from __future__ import annotations

import attrs

from kernelrl_core.recipe.schema import PositiveInt

__all__ = ["LocalConfig"]


@attrs.frozen
class LocalConfig:
    """How much of this machine is used."""

    workers: PositiveInt | None = None
    """Candidates judged at once on the processor, each with a judge of its own; null: one per core."""
    gpu_workers: PositiveInt = 3
    """Candidates under way at once on each GPU. Their correctness overlaps; what is timed has the GPU alone."""
    build_workers: PositiveInt | None = None
    """Extensions compiled at once; null: one per core that no GPU's judge needs."""
