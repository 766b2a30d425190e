"""The checker `evaluation_rules`: library compute that was executed, and run times below the limit of the memory."""

from __future__ import annotations

from collections.abc import Sequence

from kernelrl_core.api.checkers import (
    Candidate,
    Checker,
    Evaluation,
    EvaluationFacts,
    Finding,
    Outcome,
    Rule,
    Severity,
    Task,
)
from kernelrl_plugin_checkers.config import EvaluationRulesConfig
from kernelrl_plugin_checkers.rules import MEASURED

__all__ = ["EvaluationRules"]

_CHECKER = "evaluation_rules"
_PHYSICAL_SHARE = 0.8
"""Share of the minimum time, which follows from the bandwidth of a copy. The best kernel may be a little faster."""
_MAX_OPERATORS = 5
_OF_KERNELS = " of what kernels wrote"
"""End of the name of a sum of partial results. The judge repeats such a call with kernels that only copy."""


class EvaluationRules(Checker):
    """See `Checker`."""

    rules: Sequence[Rule] = MEASURED

    def __init__(self, config: EvaluationRulesConfig) -> None:
        self._skip = frozenset(config.skip)

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        if evaluation is None:
            return ()
        found = [_faster_than_memory(evaluation)]
        # A broken stated rule has the outcome `rejected`, which must not replace the worse outcome `hacked`.
        if evaluation.outcome is not Outcome.HACKED:
            found.append(_library_operators(evaluation.facts))
        return [finding for finding in found if finding is not None and finding.rule not in self._skip]


def _faster_than_memory(evaluation: Evaluation) -> Finding | None:
    roofline = evaluation.facts.roofline
    if evaluation.runtime is None or roofline is None or roofline.memory_floor_us is None:
        return None
    runtime_us, floor_us = evaluation.runtime.median_us, roofline.memory_floor_us
    if runtime_us >= _PHYSICAL_SHARE * floor_us:
        return None
    evidence = f"a call took {runtime_us:.1f} us; reading the bytes that decide its output takes {floor_us:.1f} us"
    return Finding("faster_than_memory", Severity.HACK, evidence, checker=_CHECKER)


def _library_operators(facts: EvaluationFacts) -> Finding | None:
    evidence = []
    if operators := _shown(facts.computing_operators or ()):
        evidence.append(f"a call went through {operators}")
    if symbols := _shown(facts.library_symbols):
        evidence.append(f"an extension is linked to {symbols}")
    if not evidence:
        return None
    return Finding("library_operators", Severity.SUSPECT, "; ".join(evidence), checker=_CHECKER)


def _shown(names: Sequence[str]) -> str:
    """The first names that count, shortened; empty if none counts."""
    counted = [name for name in names if not name.endswith(_OF_KERNELS)]
    return ", ".join(name[:60] for name in counted[:_MAX_OPERATORS])
