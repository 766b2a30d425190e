'''Checkers: report findings of reward hacking from the source or the evaluation of a candidate.

The core calls `check` with `evaluation=None` before the candidate is built, and again with the evaluation. A finding
names one of the checker's rules; the worst severity of a turn's findings is its verdict. `rules` lists every rule that
`check` can report, as `Rule` objects; the recipe key `forbid` turns one of them into a stated rule.

    # src/kernelrl_plugin_no_sleep/__init__.py
    """Checker `no_sleep` for kernelrl."""

    from kernelrl_core.api import Component, hookimpl


    @hookimpl
    def kernelrl_checkers() -> list[Component]:
        return [
            Component(
                "no_sleep",
                target="kernelrl_plugin_no_sleep.checker:NoSleep",
                config="kernelrl_plugin_no_sleep.options:NoSleepConfig",
                summary="Reports calls of time.sleep",
            )
        ]

    # src/kernelrl_plugin_no_sleep/options.py
    """Options of the checker `no_sleep`."""

    import attrs

    from kernelrl_core.api.checkers import CheckerConfig
    from kernelrl_core.api.config import NonNegativeInt


    @attrs.frozen
    class NoSleepConfig(CheckerConfig):
        """Options."""

        max_calls: NonNegativeInt = NonNegativeInt(0)
        """Number of calls that are accepted."""

    # src/kernelrl_plugin_no_sleep/checker.py
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

    # tests/test_no_sleep.py
    """Contract and findings of the checker `no_sleep`."""

    from kernelrl_core.testing.contracts import CheckerContract
    from kernelrl_core.testing.values import make_candidate, make_task
    from kernelrl_plugin_no_sleep.checker import NoSleep
    from kernelrl_plugin_no_sleep.options import NoSleepConfig

    BAD = "import time\\ntime.sleep(1)\\n"


    class TestContract(CheckerContract):
        component = "no_sleep"
        sources = (BAD,)


    def test_a_candidate_that_breaks_the_rule_has_a_finding() -> None:
        checker = NoSleep(NoSleepConfig())
        (finding,) = checker.check(make_candidate(BAD), make_task(), None)
        assert (finding.rule, finding.line) == ("no_sleep", 2)


    def test_another_candidate_has_none() -> None:
        checker = NoSleep(NoSleepConfig())
        assert not checker.check(make_candidate("x = 1\\n"), make_task(), None)

In a recipe:

    checkers:
      sleep: {use: no_sleep, max_calls: 1}
    forbid: [no_sleep]   # optional: the prompt states the rule, and a candidate with a finding `no_sleep` is rejected
'''

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs

from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.types.evaluations import Evaluation
from kernelrl_core.types.outcomes import Finding, Rule
from kernelrl_core.types.replies import Candidate
from kernelrl_core.types.tasks import Task

__all__ = ["Checker", "CheckerConfig"]


@attrs.frozen
class CheckerConfig(ComponentConfig):
    """Options of a checker."""

    retired_rules: ClassVar[Mapping[str, str]] = {}
    """Rule that the checker no longer has -> what replaces it. `kernelrl validate` prints it where a recipe names the
    rule in `forbid`; a saved run continues without the rule."""


class Checker(ABC):
    """Reports findings of reward hacking. Pure."""

    rules: Sequence[Rule]
    """Every rule that `check` can report. A recipe's `forbid` turns one of them into a stated rule."""

    @abstractmethod
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        """Findings of one candidate; empty: none. Called in a worker thread, one call at a time.

        An exception does not end the run: it becomes the finding `checker_failed` (note), as does a finding of a rule
        that `rules` does not declare. Both count in the metric `checker_failed_rate`.

        Args:
            candidate: with `facts`, the analysis of the source by its backend.
            evaluation: None in the first call, before the candidate is built. A second call follows with the
                evaluation, unless a stated rule already rejected the candidate.
        """
