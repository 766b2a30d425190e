"""Wrong declarations of a component: the rules of a checker, the bounds of a reward component, and others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kernelrl_core.types.evaluations import EvaluationSettings
from kernelrl_core.types.outcomes import Rule, Severity

__all__ = ["declaration_faults"]


def declaration_faults(kind: str, made: Any, options: Any) -> Iterator[str]:
    """The wrong declarations of an instance of a component, one sentence each."""
    find = _DECLARATIONS.get(kind)
    if find is not None:
        yield from find(made, options)


def _checker(made: Any, options: Any) -> Iterator[str]:
    rules = getattr(made, "rules", None)
    if not isinstance(rules, (tuple, list)) or not all(isinstance(rule, Rule) for rule in rules):
        example = "Rule('sleep', Severity.SUSPECT, 'Do not sleep.')"
        yield f"rules must be a list or tuple of Rule, such as {example}, got {rules!r}"
        return
    ids = [rule.id for rule in rules]
    yield from (f"rule {id!r} is declared twice" for id in sorted({id for id in ids if ids.count(id) > 1}))  # noqa: A001
    for rule in rules:
        if not (rule.id and rule.statement and isinstance(rule.severity, Severity)):
            yield f"{rule!r} needs an id, a Severity and a statement"


def _reward(made: Any, options: Any) -> Iterator[str]:
    try:
        bounds = options.bounds()
    except NotImplementedError as error:
        yield str(error)
        return
    if not (math.isfinite(bounds.low) and math.isfinite(bounds.gap) and bounds.low <= bounds.high):
        yield f"bounds must have a finite low and gap, and low <= high, got {bounds}"
    elif bounds.gap > bounds.high - bounds.low:
        yield f"the gap cannot exceed high - low, got {bounds}"
    try:
        EvaluationSettings(**options.needs_settings())
    except (TypeError, ValueError) as error:
        yield f"needs_settings() does not name keys of the recipe block `evaluation`: {error}"


def _evaluator(made: Any, options: Any) -> Iterator[str]:
    capacity = getattr(made, "capacity", None)
    if not isinstance(capacity, int) or capacity < 1:
        yield f"capacity must be an integer of at least 1 after the constructor, got {capacity!r}"


def _backend(made: Any, options: Any) -> Iterator[str]:
    facts = getattr(made, "facts", None)
    for field in ("title", "instructions"):
        if not getattr(facts, field, ""):
            yield f"facts.{field} is missing"
    for example in (facts.example, *facts.few_shot) if facts is not None else ():
        if "ModelNew" not in example.kernel or "Model" not in example.reference:
            yield f"example {example.name!r} must define Model in its reference and ModelNew in its kernel"
    if not str(getattr(made, "runner", "")).partition(":")[2]:
        yield "runner must name the BackendRunner as module:attribute"


def _tasks(made: Any, options: Any) -> Iterator[str]:
    splits = made.splits()
    if not splits or len(set(splits)) < len(splits) or not all(isinstance(split, str) and split for split in splits):
        yield f"splits() must return different names, at least one, got {splits!r}"


_DECLARATIONS = {
    "checkers": _checker,
    "rewards": _reward,
    "evaluators": _evaluator,
    "backends": _backend,
    "tasks": _tasks,
}
