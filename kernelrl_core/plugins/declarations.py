"""Wrong declarations of a component: the rules of a checker, the bounds of a reward component, and others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kernelrl_core.interfaces.backends import BackendFacts
from kernelrl_core.interfaces.rewards import RewardBounds
from kernelrl_core.types.evaluations import EvaluationSettings
from kernelrl_core.types.outcomes import Rule, Severity

__all__ = ["declaration_faults"]


def declaration_faults(kind: str, made: Any, options: Any) -> Iterator[tuple[str, str]]:
    """The wrong declarations of an instance of a component: a sentence, and the change that corrects it."""
    find = _DECLARATIONS.get(kind)
    if find is not None:
        yield from find(made, options)


def _checker(made: Any, options: Any) -> Iterator[tuple[str, str]]:
    example = "Rule('sleep', Severity.SUSPECT, 'Do not sleep.')"
    rules = getattr(made, "rules", None)
    if not isinstance(rules, (tuple, list)) or not all(isinstance(rule, Rule) for rule in rules):
        yield f"rules must be a list or tuple of Rule, got {rules!r}", f"write rules = ({example},)"
        return
    ids = [rule.id for rule in rules]
    for twice in sorted({rule for rule in ids if ids.count(rule) > 1}):
        yield f"rule {twice!r} is declared twice", "declare each rule once"
    for rule in rules:
        if not (rule.id and rule.statement and isinstance(rule.severity, Severity)):
            yield f"{rule!r} needs an id, a Severity and a statement", f"write, for example, {example}"


def _reward(made: Any, options: Any) -> Iterator[tuple[str, str]]:
    example = "return RewardBounds(low=0.0, high=1.0, gap=1.0) from bounds() of the options"
    try:
        bounds = options.bounds()
    except NotImplementedError as error:
        yield str(error), f"define it: {example}"
        return
    if not isinstance(bounds, RewardBounds):
        yield f"bounds() returns {bounds!r}, not a RewardBounds", example
        return
    numbers = (bounds.low, bounds.high, bounds.gap)
    if not all(isinstance(number, int | float) and not math.isnan(number) for number in numbers):
        yield f"bounds must be numbers, got {bounds}", example
    elif not (math.isfinite(bounds.low) and math.isfinite(bounds.gap) and bounds.low <= bounds.high):
        yield f"bounds must have a finite low and gap, and low <= high, got {bounds}", "correct bounds() of the options"
    elif bounds.gap > bounds.high - bounds.low:
        yield f"the gap cannot exceed high - low, got {bounds}", "lower gap in bounds() of the options"
    try:
        EvaluationSettings(**options.needs_settings())
    except (TypeError, ValueError) as error:
        message = f"needs_settings() does not name keys of the recipe block `evaluation`: {error}"
        yield message, "return keys and values that `kernelrl explain evaluation` lists"


def _evaluator(made: Any, options: Any) -> Iterator[tuple[str, str]]:
    capacity = getattr(made, "capacity", None)
    if not isinstance(capacity, int) or capacity < 1:
        message = f"capacity must be an integer of at least 1 after the constructor, got {capacity!r}"
        yield message, "set self.capacity in the constructor"


def _backend(made: Any, options: Any) -> Iterator[tuple[str, str]]:
    facts = getattr(made, "facts", None)
    if not isinstance(facts, BackendFacts):
        yield f"facts must be a BackendFacts, got {facts!r}", "write facts = BackendFacts(title=…, …) in the class"
        return
    for field in ("title", "instructions"):
        if not getattr(facts, field):
            yield f"facts.{field} is missing", f"give {field} in BackendFacts"
    for example in (facts.example, *facts.few_shot):
        if "ModelNew" not in example.kernel or "Model" not in example.reference:
            message = f"example {example.name!r} must define Model in its reference and ModelNew in its kernel"
            yield message, "give both classes in the example of `facts`"
    if not str(getattr(made, "runner", "")).partition(":")[2]:
        yield "runner must name the BackendRunner", "write runner = 'my_plugin.runner:MyRunner' in the class"


def _tasks(made: Any, options: Any) -> Iterator[tuple[str, str]]:
    splits = made.splits()
    if not splits or len(set(splits)) < len(splits) or not all(isinstance(split, str) and split for split in splits):
        message = f"splits() must return different names, at least one, got {splits!r}"
        yield message, "return names such as ('train', 'held_out'), the training split first"


_DECLARATIONS = {
    "checkers": _checker,
    "rewards": _reward,
    "evaluators": _evaluator,
    "backends": _backend,
    "tasks": _tasks,
}
