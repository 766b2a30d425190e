"""The checker `evaluation_rules`: what was measured, against what is possible."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_core.values import Candidate, Evaluation, Finding, Rule, Severity, Task
from kernelrl_plugin_checkers.config import EvaluationRulesConfig

__all__ = ["EvaluationRules"]

_CHECKER = "evaluation_rules"
_PHYSICAL_SHARE = 0.8
"""Of the floor: bandwidth is measured, and a copy may be a little slower than the best kernel."""
_LIBRARY_SHARE = 0.5
_LIBRARY_KERNEL = re.compile(r"\bat::native\b|cublas|cudnn|xmma_|^(?:ampere|volta|sm\d+)_\w*gemm|nccl", re.IGNORECASE)

_RULES = (
    Rule(
        "faster_than_memory",
        Severity.HACK,
        "Compute the output from the inputs in every call.",
        "The bytes that decide an output have to come from the device's memory; no kernel is faster than that.",
    ),
    Rule(
        "library_kernels",
        Severity.SUSPECT,
        "Do the computation of the task in your own kernels, not in torch or other library operations.",
        "Most of the device's time went to kernels of a library. The names come from the runner and prove nothing.",
    ),
)


class EvaluationRules:
    """See `kernelrl_core.kinds.Checker`."""

    rules: Sequence[Rule] = _RULES

    def __init__(self, config: EvaluationRulesConfig) -> None:
        self._skip = frozenset(config.skip)

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        if evaluation is None or evaluation.runtime is None:
            return ()
        found = (_faster_than_memory(evaluation), _library_kernels(evaluation.profile))
        return [finding for finding in found if finding is not None and finding.rule not in self._skip]


def _faster_than_memory(evaluation: Evaluation) -> Finding | None:
    roofline = evaluation.profile.get("roofline")
    floor_us = roofline.get("memory_floor_us") if isinstance(roofline, Mapping) else None
    assert evaluation.runtime is not None
    runtime_us = evaluation.runtime.median_us
    if not isinstance(floor_us, float) or runtime_us >= _PHYSICAL_SHARE * floor_us:
        return None
    evidence = f"a call took {runtime_us:.1f} us, and to read what decides its output takes {floor_us:.1f} us"
    return Finding("faster_than_memory", Severity.HACK, evidence, checker=_CHECKER)


def _library_kernels(profile: Mapping[str, Any]) -> Finding | None:
    kernels = profile.get("device_kernels")
    times = [
        (str(kernel.get("name", "")), kernel["time_us"])
        for kernel in (kernels if isinstance(kernels, Sequence) else ())
        if isinstance(kernel, Mapping) and isinstance(kernel.get("time_us"), float)
    ]
    whole_us = sum(time_us for _, time_us in times)
    library = [(time_us, name) for name, time_us in times if _LIBRARY_KERNEL.search(name)]
    spent_us = sum(time_us for time_us, _ in library)
    if whole_us <= 0 or spent_us <= _LIBRARY_SHARE * whole_us:
        return None
    evidence = (
        f"{100 * spent_us / whole_us:.0f} % of the device's time in library kernels, most in {max(library)[1][:120]}"
    )
    return Finding("library_kernels", Severity.SUSPECT, evidence, checker=_CHECKER)
