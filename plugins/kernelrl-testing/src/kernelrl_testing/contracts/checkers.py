"""The contract of checkers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from kernelrl_core.errors import suggestion
from kernelrl_core.types import Evaluation, Finding, Severity
from kernelrl_core.types.replies import Candidate, EmbeddedSource, SourceFacts
from kernelrl_testing.contracts.base import ComponentContract, require_unchanged
from kernelrl_testing.contracts.breaches import calling, require
from kernelrl_testing.contracts.hostile import HOSTILE_SOURCES
from kernelrl_testing.values import SOURCE, make_candidate, make_task, turns_of_every_outcome

__all__ = ["CheckerContract"]

_FIX_CHECK = "return a list of Finding for any candidate that parses as Python, also where there is no evaluation"
_HOSTILE_CUDA = "\0__global__ void f() {" + "{" * 500 + '/* R"x( \\'


class CheckerContract(ComponentContract):
    """A checker reports findings of declared rules, the same ones for the same candidate, in milliseconds."""

    kind = "checkers"
    sources: ClassVar[Sequence[str]] = ()
    """Candidates beside the kit's, such as those that break the rules."""
    backend: ClassVar[str] = "triton"
    """Backend of the candidates."""
    max_ms: ClassVar[float] = 50.0
    """Processor time of a check of an ordinary source. One that strains a reader may take 20 times as long."""

    def candidates(self) -> Sequence[Candidate]:
        """The candidates that are checked; they parse as Python."""
        sources = (SOURCE, "", "class ModelNew: ...\n", "# " + "long " * 5000 + "\n" + SOURCE, *self.sources)
        return [make_candidate(source, self.backend) for source in sources]

    def evaluations(self) -> Sequence[Evaluation | None]:
        """The evaluations of each candidate; None: before it runs."""
        return (None, *(turn.evaluation for turn in turns_of_every_outcome() if turn.evaluation is not None))

    def findings(self, checker: Any) -> list[list[Finding]]:
        """The findings on each pair of candidate and evaluation."""
        pairs = [(candidate, evaluation) for candidate in self.candidates() for evaluation in self.evaluations()]
        return [_checked(checker, candidate, evaluation) for candidate, evaluation in pairs]

    def test_findings_name_declared_rules(self) -> None:
        checker = self.make()
        rules = {rule.id for rule in checker.rules}
        for finding in (finding for findings in self.findings(checker) for finding in findings):
            _require_finding(finding, rules)

    def test_findings_are_repeatable(self) -> None:
        checker = self.make()
        first = self.findings(checker)
        fix = "compute the findings from the arguments alone: no counter, random number, clock or file"
        same = first == self.findings(checker) == self.findings(self.make())
        require(same, "the findings of a candidate differ between two calls", fix)

    def test_arguments_are_not_changed(self) -> None:
        checker, task = self.make(), make_task()
        for candidate in self.candidates():
            evaluations = [evaluation for evaluation in self.evaluations() if evaluation is not None]
            require_unchanged(evaluations, lambda evaluation: list(checker.check(candidate, task, evaluation)), "check")  # noqa: B023

    def test_hostile_sources_are_checked(self) -> None:
        checker = self.make()
        rules = {rule.id for rule in checker.rules}
        for name, candidate in self._hostile().items():
            for finding in _checked(checker, candidate, None, f" of a source with {name}"):
                _require_finding(finding, rules)

    def test_a_check_takes_milliseconds(self) -> None:
        checker = self.make()
        timed = [("ordinary source", candidate, self.max_ms) for candidate in self.candidates()]
        timed += [(f"source with {name}", candidate, 20 * self.max_ms) for name, candidate in self._hostile().items()]
        for name, candidate, limit_ms in timed:
            taken_ms = min(_milliseconds(checker, candidate, limit_ms))
            message = f"check of a {name} takes {taken_ms:.0f} ms, the limit is {limit_ms:.0f} ms"
            require(taken_ms <= limit_ms, message, "read the source once, and limit the work per character")

    def _hostile(self) -> dict[str, Candidate]:
        found = {name: make_candidate(source, self.backend) for name, source in HOSTILE_SOURCES.items()}
        facts = SourceFacts(embedded=(EmbeddedSource("cuda", _HOSTILE_CUDA, 1),))
        return {**found, "null bytes in embedded code": make_candidate(SOURCE, self.backend, facts=facts)}


def _checked(checker: Any, candidate: Candidate, evaluation: Evaluation | None, which: str = "") -> list[Finding]:
    with calling(f"check{which}", _FIX_CHECK):
        return list(checker.check(candidate, make_task(), evaluation))


def _require_finding(finding: Any, rules: set[str]) -> None:
    require(isinstance(finding, Finding), f"check returns {finding!r}, not a Finding", _FIX_CHECK)
    declared = f"check reports the rule {finding.rule!r}, which `rules` does not declare"
    require(
        finding.rule in rules, declared, f"add a Rule to `rules`, or correct the id; {suggestion(finding.rule, rules)}"
    )
    severity = f"a finding has the severity {finding.severity!r}"
    require(isinstance(finding.severity, Severity), severity, "use Severity.NOTE, SUSPECT or HACK")


def _milliseconds(checker: Any, candidate: Candidate, enough_ms: float) -> list[float]:
    """Times of at most three checks in processor time of this thread; a time within the limit is enough."""
    taken: list[float] = []
    while len(taken) < 3 and (not taken or min(taken) > enough_ms):
        began = time.thread_time()
        _checked(checker, candidate, None)
        taken.append(1e3 * (time.thread_time() - began))
    return taken
