"""Rules about the evaluation of candidates: keys `evaluation`, `checkers` and `forbid`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernelrl_core.errors import suggestion
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.rules.components import made
from kernelrl_core.recipe.rules.contradiction import Contradiction
from kernelrl_core.types import EvaluationSettings

__all__ = ["least_precision", "stated_rules", "unknown_rules"]


def least_precision(evaluation: EvaluationSettings) -> Iterator[Contradiction]:
    """A least precision that no evaluation with these settings could measure."""
    is_measured = evaluation.profile == "strict" and evaluation.precision in ("task", "fp32")
    if evaluation.min_precision != "none" and not is_measured:
        message = (
            "errors are compared with float64 only if evaluation.profile is strict "
            "and evaluation.precision is task or fp32"
        )
        yield Contradiction(("evaluation", "min_precision"), message, "set it to none, or set the other two")


def stated_rules(checkers: Mapping[str, Use], registry: Registry) -> tuple[str, ...]:
    """The rules that checkers state unless a recipe sets `forbid`, each once. Mistakes in a checker are reported by
    `unknown_rules`."""
    found: dict[str, None] = {}
    for name, use in checkers.items():
        checker, mistake = made("checkers", ("checkers", name), use, registry)
        if mistake is None:
            found.update({rule.id: None for rule in checker.rules if rule.stated})
    return tuple(found)


def unknown_rules(checkers: Mapping[str, Use], forbid: tuple[str, ...], registry: Registry) -> Iterator[Contradiction]:
    """Stated rules that no checker of the recipe can report."""
    if not checkers:
        if forbid:
            known_checkers = ", ".join(f"{name}: {{use: {name}}}" for name in registry.defaults("checkers"))
            hint = f"add checkers: {{{known_checkers}}}"
            yield Contradiction(("forbid",), "the recipe has no checker, so no rule can be reported", hint)
        return
    known: set[str] = set()
    for name, use in checkers.items():
        checker, mistake = made("checkers", ("checkers", name), use, registry)
        if mistake is not None:
            yield mistake
            return
        known |= {rule.id for rule in checker.rules}
    for rule in forbid:
        if rule not in known:
            message = f"no checker of this recipe has a rule {rule!r}"
            yield Contradiction(("forbid",), message, suggestion(rule, known))
