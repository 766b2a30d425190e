"""The task source that command-line options select."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelrl_core.interfaces.tasks import TaskSource

__all__ = ["source_of"]


def source_of(recipe: str | None, use: str | None, settings: Sequence[str]) -> TaskSource:
    """The task source of a recipe, or the one named `use` with `KEY=VALUE` options; `starter` if neither is given.

    Raises:
        UsageError: both are given, or an option is wrong.
    """
    from kernelrl_core.errors import UsageError
    from kernelrl_core.planning.load import load_recipe
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.recipe.merge import merge_layers, override_layers
    from kernelrl_core.recipe.problems import RecipeError
    from kernelrl_core.recipe.structure import structure_recipe

    if recipe and use:
        raise UsageError("--recipe and --use exclude each other: a recipe selects its own task source")
    if recipe:
        chosen = load_recipe(recipe, settings, registry=registry()).recipe.tasks
    else:
        layers = [f"tasks.use={use or 'starter'}", *(f"tasks.{setting}" for setting in settings)]
        found = structure_recipe(merge_layers(override_layers(layers)), registry())
        # Other required blocks are missing; only the errors of this one count.
        if problems := [problem for problem in found.problems if problem.path.partition(".")[0] == "tasks"]:
            raise RecipeError(problems)
        chosen = found.parts["tasks"]
    source: TaskSource = registry().make("tasks", chosen)
    return source
