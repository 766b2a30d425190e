"""Options of the evaluator `local`."""

from __future__ import annotations

import attrs

from kernelrl_core.component import Requires
from kernelrl_core.recipe.schema import PositiveInt
from kernelrl_core.values import EvaluationSettings

__all__ = ["LocalConfig"]


@attrs.frozen
class LocalConfig:
    """How much of this machine is used."""

    workers: PositiveInt | None = None
    """Candidates judged at once, each with a judge of its own; null: one per processor core."""

    def requires_for(self, settings: EvaluationSettings) -> Requires:
        """Run times can be measured on a GPU alone: Triton's interpreter has none that means anything."""
        fix = "run on a machine with a GPU, or set evaluation.timing=false and remove rewards that need run times"
        return Requires(gpu="any", fix=fix) if settings.timing else Requires()
