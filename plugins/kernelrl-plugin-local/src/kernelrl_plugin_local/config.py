"""Options of the evaluator `local`."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kernelrl_core.api.config import MachineFact, PositiveInt
from kernelrl_core.api.evaluators import EvaluatorConfig
from kernelrl_judge.isolation_facts import isolation_facts

__all__ = ["LocalConfig"]


@attrs.frozen
class LocalConfig(EvaluatorConfig):
    """How much of this machine is used."""

    workers: PositiveInt | None = None
    """Candidates judged at once on the processor, each with a judge of its own; null: one per core."""
    gpu_workers: PositiveInt = 3
    """Candidates under way at once on each GPU. Their correctness overlaps; what is timed has the GPU alone."""
    build_workers: PositiveInt | None = None
    """Extensions compiled at once; null: one per core that no GPU's judge needs."""

    def found_here(self) -> Iterable[MachineFact]:
        return isolation_facts()
