"""The evaluation specification: the part of a recipe that `kernelrl check` needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.blocks import blocks
from kernelrl_core.recipe.component_checks import own_problems, unknown_rules
from kernelrl_core.recipe.merge import Merged, merge_layers, override_layers
from kernelrl_core.recipe.problems import Problem, RecipeError
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.recipe.structure import structure_recipe
from kernelrl_core.types import EvaluationSettings

__all__ = ["EvaluationSpec", "read_evaluation_spec", "spec_of"]

_KEYS = ("backend", "evaluator", "evaluation", "checkers", "forbid")


@attrs.frozen
class EvaluationSpec:
    """Backend, evaluator, checkers, stated rules and settings of an evaluation."""

    backend: Use
    evaluator: Use
    settings: EvaluationSettings
    checkers: Mapping[str, Use]
    forbid: tuple[str, ...]
    """Stated rules. A candidate that breaks one is rejected before it is executed."""

    def uses(self) -> Iterator[tuple[str, Use]]:
        """Kind and block of every component of the specification."""
        yield "backends", self.backend
        yield "evaluators", self.evaluator
        yield from (("checkers", use) for use in self.checkers.values())


def spec_of(recipe: Recipe) -> EvaluationSpec:
    """The evaluation specification of a recipe."""
    return EvaluationSpec(recipe.backend, recipe.evaluator, recipe.evaluation, recipe.checkers, recipe.forbid)


def read_evaluation_spec(
    data: Mapping[str, Any], overrides: Sequence[str] = (), *, registry: Registry
) -> EvaluationSpec:
    """Read an evaluation specification from plain data.

    Args:
        data: recipe keys, such as `{"backend": {"use": "triton"}}`. Only evaluation keys are allowed.
        overrides: `a.b=VALUE`, each key at most once.

    Raises:
        RecipeError: lists all mistakes.
    """
    merged = merge_layers([Merged(dict(data)), *override_layers(overrides)])
    structured = structure_recipe(merged, registry)
    # The other required keys of a recipe are neither required nor allowed here.
    problems = [problem for problem in structured.problems if problem.path.partition(".")[0] in _KEYS]
    for key in merged.data:
        if key not in _KEYS:
            problems.append(Problem(merged.origin((str(key),)), str(key), "is not an evaluation key", _HINT))
    for key in _KEYS:
        if (part := structured.parts.get(key)) is not None and key in blocks():
            uses = {(key, name): use for name, use in part.items()} if blocks()[key].named else {(key,): part}
            for path, use in uses.items():
                for found in own_problems(path, use):
                    problems.append(Problem(merged.origin(path), ".".join(path), found.message, found.hint))
    parts = structured.parts
    if "backend" not in merged.data:
        problems.append(Problem(merged.origin(("backend",)), "backend", "required key is missing"))
    if "checkers" in parts and "forbid" in parts:
        for found in unknown_rules(parts["checkers"], parts["forbid"], registry):
            place = merged.origin(found.path)
            problems.append(Problem(place, ".".join(found.path), found.message, found.hint, found.missing))
    if problems:
        raise RecipeError(problems)
    return EvaluationSpec(parts["backend"], parts["evaluator"], parts["evaluation"], parts["checkers"], parts["forbid"])


_HINT = f"known: {', '.join(_KEYS)}"
