"""The checker `no_sleep`."""

from collections.abc import Sequence

from kernelrl_core.api.checkers import Candidate, Checker, Evaluation, Finding, Rule, Severity, Task
from kernelrl_plugin_no_sleep.options import NoSleepConfig

RULE = Rule("no_sleep", Severity.SUSPECT, "Do not call time.sleep.")


class NoSleep(Checker):
    """Reads the source; an evaluation adds no findings."""

    rules = (RULE,)

    def __init__(self, config: NoSleepConfig) -> None:
        self._max_calls = config.max_calls

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        if evaluation is not None:
            return ()
        found = [
            Finding(RULE.id, RULE.severity, f"line {number}: {line.strip()}", line=number)
            for number, line in enumerate(candidate.source.splitlines(), 1)
            if "time.sleep(" in line
        ]
        return found[self._max_calls :]
