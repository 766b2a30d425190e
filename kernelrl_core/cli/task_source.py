"""The task source that command-line options select."""

from __future__ import annotations

from collections.abc import Sequence

from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.planning.load import merge_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.merge import Merged, merge_layers, override_layers
from kernelrl_core.recipe.parts import read_parts

__all__ = ["layers_of", "source_of"]


def source_of(recipe: str | None, use: str | None, settings: Sequence[str]) -> TaskSource:
    """The task source of a recipe, or the one named `use` with `KEY=VALUE` options; the default if neither is given.

    Raises:
        UsageError: both are given, or an option is wrong. Mistakes in other recipe keys are ignored.
    """
    parts = read_parts(layers_of(recipe, use, settings), ("tasks",), registry())
    source: TaskSource = registry().make("tasks", parts["tasks"])
    return source


def layers_of(recipe: str | None, use: str | None, settings: Sequence[str]) -> Merged:
    """The merged keys of a recipe, or those of a task source. Arguments and errors: see `source_of`."""
    if recipe and use:
        raise UsageError("--recipe and --use exclude each other: a recipe selects its own task source")
    if recipe:
        return merge_recipe(recipe, settings)
    name = use or registry().default("tasks")
    return merge_layers(override_layers([f"tasks.use={name}", *(f"tasks.{one}" for one in settings)]))
