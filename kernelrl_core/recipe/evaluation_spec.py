"""How candidates are evaluated: the part of a recipe that needs no tasks, no policy and no rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.blocks import blocks
from kernelrl_core.recipe.component_checks import own_problems, unknown_rules
from kernelrl_core.recipe.merge import Merged, merge_layers, override_layer
from kernelrl_core.recipe.problems import Problem, RecipeError
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.recipe.structure import structure_recipe
from kernelrl_core.types import EvaluationSettings

__all__ = ["EvaluationSpec", "read_evaluation_spec", "spec_of"]

_KEYS = ("backend", "evaluator", "evaluation", "checkers", "forbid")


@attrs.frozen
class EvaluationSpec:
    """Backend, evaluator, checkers and settings of an evaluation."""

    backend: Use
    evaluator: Use
    settings: EvaluationSettings
    checkers: Mapping[str, Use]
    forbid: tuple[str, ...]
    """Rules of the checkers that reject a candidate."""

    def uses(self) -> Iterator[tuple[str, Use]]:
        """Kind and component of everything it uses."""
        yield "backends", self.backend
        yield "evaluators", self.evaluator
        yield from (("checkers", use) for use in self.checkers.values())


def spec_of(recipe: Recipe) -> EvaluationSpec:
    """How a recipe evaluates candidates."""
    return EvaluationSpec(recipe.backend, recipe.evaluator, recipe.evaluation, recipe.checkers, recipe.forbid)


def read_evaluation_spec(
    data: Mapping[str, Any], overrides: Sequence[str] = (), *, registry: Registry
) -> EvaluationSpec:
    """Read the evaluation keys of a recipe from plain data.

    Args:
        data: such as `{"backend": {"use": "triton"}}`; other keys than those of an evaluation are mistakes.
        overrides: `a.b=VALUE`, applied in order.

    Raises:
        RecipeError: mistakes, all of them at once.
    """
    merged = merge_layers([Merged(dict(data)), *map(override_layer, overrides)])
    structured = structure_recipe(merged, registry)
    # A recipe needs more keys; here they are neither needed nor allowed.
    problems = [problem for problem in structured.problems if problem.path.partition(".")[0] in _KEYS]
    for key in merged.data:
        if key not in _KEYS:
            problems.append(Problem(merged.origin((str(key),)), str(key), "plays no part in an evaluation", _HINT))
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
