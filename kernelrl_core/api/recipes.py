"""Read, merge and write recipes, for programs that make them. Imports the plugin registry and the recipe reader."""

from __future__ import annotations

from kernelrl_core.planning.load import checked_recipe
from kernelrl_core.recipe.json_schema import object_schema
from kernelrl_core.recipe.merge import Merged, merge_layers, override_layers, read_layer, shown_path
from kernelrl_core.recipe.problems import Origin, Problem, RecipeError
from kernelrl_core.sources.yaml import dump

__all__ = [
    "Merged",
    "Origin",
    "Problem",
    "RecipeError",
    "checked_recipe",
    "dump",
    "merge_layers",
    "object_schema",
    "override_layers",
    "read_layer",
    "shown_path",
]
