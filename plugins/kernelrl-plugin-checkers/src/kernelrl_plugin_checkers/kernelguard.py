"""The checker `kernelguard`: the patterns of the package of that name as notes."""

from __future__ import annotations

from collections.abc import Sequence

import kernelguard  # type: ignore[import-not-found, import-untyped, unused-ignore]

from kernelrl_core.api.checkers import Candidate, Checker, Evaluation, Finding, Rule, Severity, Task
from kernelrl_core.api.errors import UsageError, suggestion
from kernelrl_plugin_checkers.config import KernelguardConfig

__all__ = ["Kernelguard"]

_PROFILE = "sol-execbench"
"""All of its patterns, with `forward` among the functions that count as entries."""
_MAX_CHARACTERS = 20_000
"""Longer sources take it too long."""
_MAX_EVIDENCE = 300


class Kernelguard(Checker):
    """See `Checker`.

    Raises:
        UsageError: the options name an unknown rule.
    """

    def __init__(self, config: KernelguardConfig) -> None:
        kernelguard.configure_runtime(profile=_PROFILE)
        known = [_id(pattern) for pattern in kernelguard.BASE_RULE_REGISTRY]
        for rule in config.skip:
            if rule not in known:
                raise UsageError(f"skip: there is no rule {rule!r}", fix=suggestion(rule, known), see="recipe")
        self._rules = {
            pattern: Rule(_id(pattern), Severity.NOTE, f"Do not write what kernelguard calls {_words(pattern)}.")
            for pattern in kernelguard.BASE_RULE_REGISTRY
            if _id(pattern) not in config.skip
        }
        self._unread = Rule("kernelguard_unread", Severity.NOTE, "Write a source that kernelguard can read.")
        self.rules: Sequence[Rule] = (*self._rules.values(), self._unread)

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        """One finding for each pattern that kernelguard sees in the source."""
        if evaluation is not None:
            return ()
        if len(candidate.source) > _MAX_CHARACTERS:
            what = f"{len(candidate.source)} characters, more than {_MAX_CHARACTERS}, were not read"
            return (Finding(self._unread.id, Severity.NOTE, what),)
        try:
            found = kernelguard.analyze_code(candidate.source, compute_structural_hash=False)["matched_patterns"]
        except (MemoryError, RecursionError, ValueError) as error:
            return (Finding(self._unread.id, Severity.NOTE, f"it ended with {type(error).__name__}"),)
        evidence = {match["pattern"]: str(match.get("evidence", "")) for match in reversed(found)}
        return [
            Finding(rule.id, rule.severity, f"{pattern}: {evidence[pattern]}"[:_MAX_EVIDENCE])
            for pattern, rule in self._rules.items()
            if pattern in evidence
        ]


def _id(pattern: str) -> str:
    return f"kernelguard_{pattern.lower()}"


def _words(pattern: str) -> str:
    return pattern.lower().replace("_", " ")
