"""Contradictions within the evaluation keys of a recipe and within the options of a component."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.errors import KernelRLError, MissingPrerequisite, suggestion
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.merge import Merged
from kernelrl_core.recipe.problems import Problem
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.types import EvaluationSettings

__all__ = ["Contradiction", "contradicting_precision", "made", "own_problems", "unknown_rules"]


_FORMER_DEFAULT = ("no_kernel", "library_compute")
"""Of `forbid`, in saved recipes."""


@attrs.frozen
class Contradiction:
    """Values of a recipe that exclude each other."""

    path: tuple[str, ...]
    """The value to change."""
    message: str
    hint: str = ""
    missing: bool = False
    """The fix is an installation, not a change of the recipe."""

    def problem(self, merged: Merged) -> Problem:
        """The mistake with its file and line."""
        return Problem(merged.origin(self.path), ".".join(self.path), self.message, self.hint, self.missing)


def own_problems(path: tuple[str, ...], use: Use) -> Iterator[Contradiction]:
    """Contradictions that a component finds in its own options (`ComponentConfig.problems`)."""
    try:
        found = [str(problem) for problem in use.options.problems()]
    except Exception as error:  # plugin code
        found = [f"component {use.use!r} cannot check its options: {type(error).__name__}: {error}"]
    yield from (Contradiction(path, message) for message in found)


def made(kind: str, path: tuple[str, ...], use: Use, registry: Registry) -> tuple[Any, Contradiction | None]:
    """A component that needs neither machine nor network, and the first mistake in its code; None if there is none."""
    try:
        return registry.make(kind, use), None  # type: ignore[call-overload]
    except MissingPrerequisite as error:
        return None, Contradiction(path, error.message, error.fix, missing=True)
    except KernelRLError as error:
        return None, Contradiction(path, error.message, error.fix)


def contradicting_precision(evaluation: EvaluationSettings) -> Iterator[Contradiction]:
    """A least precision that no evaluation with these settings could measure."""
    is_measured = evaluation.profile == "strict" and evaluation.precision in ("task", "fp32")
    if evaluation.min_precision != "none" and not is_measured:
        message = (
            "errors are compared with float64 only if evaluation.profile is strict "
            "and evaluation.precision is task or fp32"
        )
        yield Contradiction(("evaluation", "min_precision"), message, "set it to none, or set the other two")


def unknown_rules(checkers: Mapping[str, Use], forbid: Sequence[str], registry: Registry) -> Iterator[Contradiction]:
    """Stated rules that no checker of the recipe can report."""
    if forbid in (attrs.fields(Recipe).forbid.default, _FORMER_DEFAULT):
        # Of the default, the rules that some checker reports are stated.
        forbid = ()
    if not checkers:
        if forbid:
            hint = "add checkers: {source: {use: source_rules}}"
            yield Contradiction(("forbid",), "the recipe has no checker, so no rule can be reported", hint)
        return
    known: set[str] = set()
    retired: dict[str, str] = {}
    for name, use in checkers.items():
        checker, mistake = made("checkers", ("checkers", name), use, registry)
        if mistake is not None:
            yield mistake
            return
        known |= {rule.id for rule in checker.rules}
        retired |= getattr(use.options, "retired_rules", {})
    for rule in forbid:
        if rule in retired and rule not in known:
            message = f"the rule {rule!r} no longer exists: {retired[rule]}"
            yield Contradiction(("forbid",), message, f"remove {rule!r} from forbid")
        elif rule not in known:
            message = f"no checker of this recipe has a rule {rule!r}"
            yield Contradiction(("forbid",), message, suggestion(rule, known))
