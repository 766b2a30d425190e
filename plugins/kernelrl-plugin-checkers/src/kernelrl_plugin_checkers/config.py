"""Options of the checkers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs

from kernelrl_core.api.checkers import CheckerConfig, Rule, Severity
from kernelrl_core.api.errors import suggestion
from kernelrl_plugin_checkers.rules import MEASURED, SOURCE

__all__ = ["EvaluationRulesConfig", "KernelguardConfig", "SourceRulesConfig"]

_SEVERITIES = tuple(severity.value for severity in Severity)


@attrs.frozen
class SourceRulesConfig(CheckerConfig):
    """Options of `source_rules`."""

    skip: tuple[str, ...] = ()
    """Rules that are not checked."""
    severity: dict[str, str] = attrs.field(factory=dict)
    """Rule id -> `note`, `suspect` or `hack`, in place of the rule's own."""

    def problems(self) -> Iterable[str]:
        """Names in the options that are no rule, and values that are no severity."""
        yield from _unknown((*self.skip, *self.severity), SOURCE)
        for value in self.severity.values():
            if value not in _SEVERITIES:
                yield f"there is no severity {value!r}; {suggestion(value, _SEVERITIES)}"


@attrs.frozen
class EvaluationRulesConfig(CheckerConfig):
    """Options of `evaluation_rules`."""

    skip: tuple[str, ...] = ()
    """Rules that are not checked: `library_operators`, `faster_than_memory`."""

    def problems(self) -> Iterable[str]:
        """Names in the options that are no rule."""
        return _unknown(self.skip, MEASURED)


def _unknown(rules: Iterable[str], declared: Sequence[Rule]) -> Iterator[str]:
    known = [rule.id for rule in declared]
    for rule in rules:
        if rule not in known:
            yield f"there is no rule {rule!r}; {suggestion(rule, known)}"


@attrs.frozen
class KernelguardConfig(CheckerConfig):
    """Options of `kernelguard`."""

    skip: tuple[str, ...] = ()
    """Rules that are not reported, such as `kernelguard_dynamic_execution`."""
