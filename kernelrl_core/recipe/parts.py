"""Reading of some keys of a recipe, for commands that need no more than these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.blocks import uses
from kernelrl_core.recipe.merge import Merged
from kernelrl_core.recipe.problems import COMMAND_LINE, Problem, RecipeError
from kernelrl_core.recipe.rules.components import own_problems
from kernelrl_core.recipe.rules.evaluation import least_precision, unknown_rules
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.recipe.structure import structure_recipe

__all__ = ["read_parts"]


def read_parts(merged: Merged, keys: Sequence[str], registry: Registry) -> dict[str, Any]:
    """The typed values of some keys of a recipe, defaults included.

    Mistakes in other keys are ignored. A key that no recipe has is a mistake, because one of `keys` may be meant. So is
    another key on the command line, where it would have no effect.

    Raises:
        RecipeError: lists all mistakes.
    """
    fields = attrs.fields_dict(Recipe)
    read = {key: value for key, value in merged.data.items() if key in keys or key not in fields}
    structured = structure_recipe(attrs.evolve(merged, data=read), registry)
    problems = [
        problem
        for problem in structured.problems
        if (key := problem.path.partition(".")[0]) in keys or (key and key not in fields)
    ]
    for key in keys:
        if merged.data.get(key) is None and fields[key].default is attrs.NOTHING:
            problems.append(Problem(merged.origin((key,)), key, "required key is missing"))
    for key in merged.data:
        if key in fields and key not in keys and merged.origin((key,)).source == COMMAND_LINE:
            problems.append(Problem(merged.origin((key,)), key, "has no effect here", f"known: {', '.join(keys)}"))
    parts = {key: value for key, value in structured.parts.items() if key in keys}
    found = [mistake for path, use in uses(parts) for mistake in own_problems(path, use)]
    if "evaluation" in parts:
        found += least_precision(parts["evaluation"])
    if "checkers" in parts and "forbid" in parts:
        found += unknown_rules(parts["checkers"], parts["forbid"], registry)
    problems += [mistake.problem(merged) for mistake in found]
    if problems:
        raise RecipeError(merged.ordered(problems))
    return parts
