"""The checker `register_limit`."""

import re
from collections.abc import Sequence

from kernelrl_core.api.checkers import Candidate, Checker, Evaluation, Finding, Rule, Severity, Task
from kernelrl_plugin_register_pressure.options import RegisterLimitConfig

RULE = Rule(
    "register_limit",
    Severity.SUSPECT,
    "Do not limit the registers of a kernel so far that it spills.",
    reason="The compiler then moves values to local memory, which is slower, and reports fewer registers.",
)
_LIMIT = re.compile(r"__launch_bounds__|__maxnreg__|maxrregcount")


class RegisterLimit(Checker):
    """Needs the evaluation: only the compiler knows what a limit costs."""

    rules = (RULE,)

    def __init__(self, config: RegisterLimitConfig) -> None:
        self._spilled_bytes = config.spilled_bytes

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        if evaluation is None:
            return ()
        lines = [number for number, line in enumerate(candidate.source.splitlines(), 1) if _LIMIT.search(line)]
        spilled = {one.name: max(one.spill_stores_bytes, one.spill_loads_bytes) for one in evaluation.kernels}
        worst = max(spilled, key=lambda name: spilled[name], default="")
        if not lines or spilled.get(worst, 0) <= self._spilled_bytes:
            return ()
        evidence = f"kernel {worst} spills {spilled[worst]} bytes per thread; line {lines[0]} limits its registers"
        return [Finding(RULE.id, RULE.severity, evidence, line=lines[0])]
