"""The checker `source_rules`: evidence from a candidate's Python and the C++ inside it, with line and excerpt.

A text can show whether a kernel is launched, whether an exception handler computes, whether the reference is inherited,
and whether the source can be read. Rules on other properties are notes: the evaluation decides about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from kernelrl_core.api.checkers import Candidate, Checker, Evaluation, Finding, Rule, Severity, Task
from kernelrl_plugin_checkers.calls import breaches_of_calls
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.cpu_rules import cpu_breaches
from kernelrl_plugin_checkers.library import cpp_breaches
from kernelrl_plugin_checkers.python_rules import python_breaches
from kernelrl_plugin_checkers.reading import Breach, HiddenSource, read
from kernelrl_plugin_checkers.rules import SOURCE

__all__ = ["SourceRules"]

_MAX_PER_RULE = 5
_MAX_EXCERPT = 120


class SourceRules(Checker):
    """See `Checker`."""

    def __init__(self, config: SourceRulesConfig) -> None:
        self._rules: dict[str, Rule] = {
            rule.id: attrs.evolve(rule, severity=Severity(config.severity.get(rule.id, rule.severity)))
            for rule in SOURCE
            if rule.id not in config.skip
        }
        self.rules: Sequence[Rule] = tuple(self._rules.values())

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        """Findings on the source; with an evaluation, those on what its calls launched, and of the rule on CPUs."""
        if evaluation is not None:
            found = (*breaches_of_calls(candidate, evaluation), *cpu_breaches(candidate, evaluation))
            return self._findings(found, candidate.source.split("\n"))
        return self._findings(_breaches(candidate), candidate.source.split("\n"))

    def _findings(self, breaches: Iterable[Breach], lines: Sequence[str]) -> Sequence[Finding]:
        found: dict[str, list[Finding]] = {}
        for rule, line, note in breaches:
            kept = found.setdefault(rule, [])
            excerpt = lines[line - 1].strip()[:_MAX_EXCERPT] if line and line <= len(lines) else ""
            evidence = f"line {line}: {excerpt} ({note})" if line else note
            is_new = all(other.line != line if line else other.evidence != evidence for other in kept)
            if rule in self._rules and len(kept) < _MAX_PER_RULE and is_new:
                kept.append(Finding(rule, self._rules[rule].severity, evidence, line))
        return [finding for rule in self._rules for finding in sorted(found.get(rule, ()), key=lambda f: f.line or 0)]


def _breaches(candidate: Candidate) -> Iterator[Breach]:
    for piece in candidate.facts.embedded:
        if piece.language != "triton":
            for line, note in cpp_breaches(piece):
                yield "library_compute", line, f"{note}, in C++"
    reading = read(candidate.source)
    if reading is None:
        yield "unreadable_source", None, "the Python cannot be parsed"
        return
    try:
        yield from python_breaches(reading, candidate.facts)
    except HiddenSource as error:
        yield "hidden_source", None, f"the source cannot be read: {error}"
