"""Contradictions within the options of a component, and between checkers and stated rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from kernelrl_core.errors import KernelRLError, MissingPrerequisite, suggestion
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.schema import Recipe

__all__ = ["Contradiction", "own_problems", "unknown_rules"]


@attrs.frozen
class Contradiction:
    """Values of a recipe that exclude each other."""

    path: tuple[str, ...]
    """The value to change."""
    message: str
    hint: str = ""
    missing: bool = False
    """The fix is an installation, not a change of the recipe."""


def own_problems(path: tuple[str, ...], use: Use) -> Iterator[Contradiction]:
    """Contradictions that a component finds in its own options (`ComponentConfig.problems`)."""
    try:
        found = [str(problem) for problem in use.options.problems()]
    except Exception as error:  # plugin code
        found = [f"component {use.use!r} cannot check its options: {type(error).__name__}: {error}"]
    yield from (Contradiction(path, message) for message in found)


def unknown_rules(checkers: Mapping[str, Use], forbid: Sequence[str], registry: Registry) -> Iterator[Contradiction]:
    """Stated rules that no checker of the recipe can report."""
    if not checkers:
        # Without checkers no rule is stated or reported. The default of `forbid` is then no mistake; another value is.
        if forbid and forbid != attrs.fields(Recipe).forbid.default:
            hint = "add checkers: {source: {use: source_rules}}"
            yield Contradiction(("forbid",), "the recipe has no checker, so no rule can be reported", hint)
        return
    known: set[str] = set()
    for name, use in checkers.items():
        try:
            known |= {rule.id for rule in registry.make("checkers", use).rules}
        except MissingPrerequisite as error:
            yield Contradiction(("checkers", name), error.message, error.fix, missing=True)
            return
        except KernelRLError as error:
            yield Contradiction(("checkers", name), error.message, error.fix)
            return
    for rule in forbid:
        if rule not in known:
            message = f"no checker of this recipe has a rule {rule!r}"
            yield Contradiction(("forbid",), message, suggestion(rule, known))
