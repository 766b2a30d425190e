"""Options of the checkers."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kernelrl_core.api.checkers import CheckerConfig, Severity
from kernelrl_core.api.errors import suggestion
from kernelrl_plugin_checkers.rules import RULES

__all__ = ["EvaluationRulesConfig", "KernelguardConfig", "SourceRulesConfig"]

_SEVERITIES = tuple(severity.value for severity in Severity)


@attrs.frozen
class SourceRulesConfig(CheckerConfig):
    """Which rules are looked at, and how much a breach weighs."""

    skip: tuple[str, ...] = ()
    """Rules that are not looked at."""
    severity: dict[str, str] = attrs.field(factory=dict)
    """Rule id -> `note`, `suspect` or `hack`, in place of the rule's own."""

    def problems(self) -> Iterable[str]:
        """What names no rule or no severity."""
        for rule in (*self.skip, *self.severity):
            if rule not in RULES:
                yield f"there is no rule {rule!r}; {suggestion(rule, RULES)}"
        for value in self.severity.values():
            if value not in _SEVERITIES:
                yield f"there is no severity {value!r}; {suggestion(value, _SEVERITIES)}"


@attrs.frozen
class EvaluationRulesConfig(CheckerConfig):
    """Which rules are looked at."""

    skip: tuple[str, ...] = ()
    """Rules that are not looked at: `faster_than_memory`, `library_kernels`, `library_operators`,
    `programs_race`."""

    def problems(self) -> Iterable[str]:
        """What names no rule."""
        known = ("faster_than_memory", "library_kernels", "library_operators", "programs_race")
        for rule in self.skip:
            if rule not in known:
                yield f"there is no rule {rule!r}; {suggestion(rule, known)}"


@attrs.frozen
class KernelguardConfig(CheckerConfig):
    """Which of kernelguard's patterns are left out."""

    skip: tuple[str, ...] = ()
    """Rules that are not reported, such as `kernelguard_dynamic_execution`."""
