"""Options of the evaluator `local`."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kernelrl_core.api.config import MachineFact, PositiveInt
from kernelrl_core.api.evaluators import EvaluatorConfig
from kernelrl_sandbox.layers import isolation_facts

__all__ = ["LocalConfig"]


@attrs.frozen
class LocalConfig(EvaluatorConfig):
    """Share of this machine that evaluations may use."""

    workers: PositiveInt | None = None
    """Candidates evaluated concurrently on the CPU, each with its own judge; null: one per core."""
    gpu_workers: PositiveInt | None = None
    """Candidates evaluated concurrently on each GPU; null: one per two cores, at most 8. Trials overlap; a timed
    candidate has the GPU exclusively."""
    build_workers: PositiveInt | None = None
    """Extensions compiled concurrently; null: one per core, less two for each GPU."""

    confine_judge: bool = False
    """Confine the judges: the references of all tasks run without network, without files and variables of the user. For
    tasks that others wrote and that read no files."""

    def found_here(self) -> Iterable[MachineFact]:
        return isolation_facts()
