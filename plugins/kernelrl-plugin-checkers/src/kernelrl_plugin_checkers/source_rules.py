"""The checker `source_rules`: evidence from a candidate's Python and the C++ inside it, with line and excerpt.

Once a candidate has run, the C++ that it had built is looked at as well where the source does not show it.

It looks at code that `ModelNew.forward` can come to, and tells library compute from what only allocates or arranges. It
is on the side of the candidate where it cannot know: attributes of unknown objects, arithmetic on numbers and shapes,
layers that only hold parameters, and code that nothing calls, are let pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

import attrs

from kernelrl_core.api.checkers import Candidate, Checker, Evaluation, Finding, Rule, Severity, SourceFacts, Task
from kernelrl_core.api.sources import MAX_SOURCE_CHARACTERS, parse_source
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.cpp_names import Defined
from kernelrl_plugin_checkers.cpp_rules import cpp_breaches, cpp_texts, unread_cpp
from kernelrl_plugin_checkers.embedded import embedded_texts
from kernelrl_plugin_checkers.hidden import hidden_breaches
from kernelrl_plugin_checkers.plain_python import unusual_python
from kernelrl_plugin_checkers.python_compute import ComputeRules
from kernelrl_plugin_checkers.python_patterns import pattern_breaches, waits_for_streams
from kernelrl_plugin_checkers.reading import Breach, Reading, TooMuch
from kernelrl_plugin_checkers.rules import RULES
from kernelrl_plugin_checkers.triton_bodies import unfit_bodies
from kernelrl_plugin_checkers.triton_copies import copying_kernels

__all__ = ["SourceRules"]

_MAX_PER_RULE = 5
_MAX_EXCERPT = 120


class SourceRules(Checker):
    """See `Checker`."""

    def __init__(self, config: SourceRulesConfig) -> None:
        self._rules: dict[str, Rule] = {
            id_: attrs.evolve(rule, severity=Severity(config.severity.get(id_, rule.severity)))
            for id_, rule in RULES.items()
            if id_ not in config.skip
        }
        self.rules: Sequence[Rule] = tuple(self._rules.values())

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        """Findings on the source; once it has run, those on what was built and does not stand in it."""
        if evaluation is None:
            lines = candidate.source.split("\n") if len(candidate.source) <= MAX_SOURCE_CHARACTERS else []
            return self._findings(_breaches(candidate.source, candidate.facts, lines), lines)
        return self._findings(hidden_breaches(candidate, evaluation), ())

    def _findings(self, breaches: Iterable[Breach], lines: Sequence[str]) -> Sequence[Finding]:
        found: dict[str, list[Finding]] = {}
        for rule, line, note in breaches:
            kept = found.setdefault(rule, [])
            excerpt = lines[line - 1].strip()[:_MAX_EXCERPT] if line and line <= len(lines) else ""
            evidence = f"line {line}: {excerpt} ({note})" if line else note
            if (
                rule in self._rules
                and len(kept) < _MAX_PER_RULE
                and all(other.line != line if line else other.evidence != evidence for other in kept)
            ):
                kept.append(Finding(rule, self._rules[rule].severity, evidence, line))
        return [finding for rule in self._rules for finding in sorted(found.get(rule, ()), key=lambda f: f.line or 0)]


def _breaches(source: str, facts: SourceFacts, lines: Sequence[str]) -> Iterator[Breach]:
    if len(source) > MAX_SOURCE_CHARACTERS:
        yield "unread_source", None, f"{len(source)} characters, more than {MAX_SOURCE_CHARACTERS}, were not read"
        return
    tree = parse_source(source)
    if tree is None:
        yield "unreadable_source", None, "the Python could not be parsed"
        return
    try:
        yield from _of_tree(tree, facts, lines)
    except (TooMuch, RecursionError) as error:
        what = "it takes too many steps" if isinstance(error, TooMuch) else "it is nested too deeply"
        yield "unread_source", None, f"reading stopped before the end: {what}"


def _of_tree(tree: ast.Module, facts: SourceFacts, lines: Sequence[str]) -> Iterator[Breach]:
    reading = Reading(tree)
    texts = cpp_texts(embedded_texts(reading.nodes, facts, lines))
    in_python = {node.attr for node in reading.nodes if isinstance(node, ast.Attribute)}
    waits = any(text.waits for text in texts) or waits_for_streams(reading)
    copies = any(text.copies for text in texts) or "copy_" in in_python
    defined = Defined([text.defined for text in texts])
    # First of all: what ends the reading of the Python must not hide the C++.
    for text in texts:
        yield from cpp_breaches(text, defined=defined, waits=waits, copies=copies)
    yield from unread_cpp(texts)
    yield from ComputeRules(reading, facts).breaches()
    yield from pattern_breaches(reading, waits=waits, copies=copies)
    kernels: set[int] = set()
    yield from unfit_bodies(reading, kernels)
    yield from unusual_python(reading, kernels)
    yield from copying_kernels(reading)
