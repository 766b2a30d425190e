"""The checker `evaluation_rules`: what was measured, against what is possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.api.checkers import Candidate, Checker, Evaluation, Finding, Outcome, Rule, Severity, Task
from kernelrl_plugin_checkers.config import EvaluationRulesConfig
from kernelrl_plugin_checkers.rules import MEASURED

__all__ = ["EvaluationRules"]

_CHECKER = "evaluation_rules"
_PHYSICAL_SHARE = 0.8
"""Of the floor: bandwidth is measured, and a copy may be a little slower than the best kernel."""
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
        # A stated rule rejects, and must not stand in the way of the worse outcome.
        if evaluation.outcome is not Outcome.HACKED:
            found.append(_library_operators(evaluation.profile))
        return [finding for finding in found if finding is not None and finding.rule not in self._skip]


def _faster_than_memory(evaluation: Evaluation) -> Finding | None:
    roofline = evaluation.profile.get("roofline")
    floor_us = roofline.get("memory_floor_us") if isinstance(roofline, Mapping) else None
    if evaluation.runtime is None:
        return None
    runtime_us = evaluation.runtime.median_us
    if not isinstance(floor_us, float) or runtime_us >= _PHYSICAL_SHARE * floor_us:
        return None
    evidence = f"a call took {runtime_us:.1f} us, and to read what decides its output takes {floor_us:.1f} us"
    return Finding("faster_than_memory", Severity.HACK, evidence, checker=_CHECKER)


def _library_operators(profile: Mapping[str, Any]) -> Finding | None:
    said = []
    for key, how in (("computing_operators", "a call went through"), ("library_symbols", "an extension is linked to")):
        names = profile.get(key)
        names = [str(name) for name in names if not str(name).endswith(_OF_KERNELS)] if isinstance(names, list) else []
        if names:
            said.append(f"{how} {', '.join(name[:60] for name in names[:_MAX_OPERATORS])}")
    if not said:
        return None
    return Finding("library_operators", Severity.SUSPECT, "; ".join(said), checker=_CHECKER)
