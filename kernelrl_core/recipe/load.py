"""From the name of a recipe to a recipe that can be run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.errors import UsageError
from kernelrl_core.naming import suggestion
from kernelrl_core.recipe.merge import Merged, merge_files, merge_layers, override_layer
from kernelrl_core.recipe.problems import Origin, Problem, RecipeError
from kernelrl_core.recipe.rules import contradictions
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.recipe.structure import structure
from kernelrl_core.registry import Registry

__all__ = ["LoadedRecipe", "bundled_recipes", "find_recipe", "load_recipe", "recipe_from_mapping", "recipes"]


@attrs.frozen
class LoadedRecipe:
    """A recipe that is understood and free of contradictions."""

    name: str
    """Name of its file, without the ending."""
    recipe: Recipe
    resolved: dict[str, Any]
    """Plain data with every default; loads again to an equal recipe."""
    sources: tuple[Path, ...] = ()
    """Files it was read from, bases first."""


def load_recipe(name_or_path: str, overrides: Sequence[str] = (), *, registry: Registry) -> LoadedRecipe:
    """Read a recipe, lay the overrides over it, and check everything.

    Args:
        name_or_path: an existing path, a file of `./recipes`, or a bundled recipe.
        overrides: `a.b=VALUE` of the command line, the value read as YAML.

    Raises:
        RecipeError: every mistake at once.
        UsageError: there is no such recipe.
    """
    path = find_recipe(name_or_path)
    layers = [merge_files(path, _extended)]
    problems: list[Problem] = []
    for override in overrides:
        try:
            layers.append(override_layer(override))
        except RecipeError as error:
            problems.extend(error.problems)
    return _understood(path.stem, merge_layers(layers), registry, problems)


def recipe_from_mapping(data: Mapping[str, Any], *, registry: Registry, name: str = "recipe") -> LoadedRecipe:
    """The recipe that plain data describes, such as `LoadedRecipe.resolved`.

    Raises:
        RecipeError: every mistake at once.
    """
    return _understood(name, Merged(dict(data), {(): Origin(name)}), registry, [])


def find_recipe(name_or_path: str) -> Path:
    """The file that a name stands for.

    Raises:
        UsageError: there is none.
    """
    given = Path(name_or_path)
    if given.is_file():
        return given
    found = recipes().get(name_or_path)
    if found is not None:
        return found
    if given.exists():
        raise UsageError(f"{name_or_path} is not a file")
    raise UsageError(
        f"there is no recipe {name_or_path!r}; {suggestion(name_or_path, recipes())}", fix="kernelrl recipes list"
    )


def recipes() -> dict[str, Path]:
    """Name -> file of every recipe that a bare name can mean; those of `./recipes` come before the bundled ones."""
    return {**bundled_recipes(), **_in_folder(Path("recipes"))}


def bundled_recipes() -> dict[str, Path]:
    """Name -> file of the recipes that come with kernelrl."""
    package = Path(__file__).parents[1]
    # Wheels carry them inside the package; an editable checkout has them beside it.
    inside = package / "recipes"
    return _in_folder(inside if inside.is_dir() else package.parent / "recipes")


def _in_folder(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.yaml")) if os.access(path, os.R_OK)}


def _extended(name: str, folder: Path) -> Path | None:
    for path in (folder / name, folder / f"{name}.yaml"):
        if path.is_file():
            return path.absolute()
    found = bundled_recipes().get(name.removesuffix(".yaml"))
    return found.absolute() if found is not None else None


def _understood(name: str, merged: Merged, registry: Registry, problems: list[Problem]) -> LoadedRecipe:
    found = structure(merged, registry)
    problems = [*problems, *found.problems]
    if found.recipe is not None:
        problems += [
            Problem(merged.origin(tuple(path.split("."))), path, message)
            for path, message in contradictions(found.recipe, registry)
        ]
    if problems or found.recipe is None:
        raise RecipeError(sorted(problems, key=lambda problem: (problem.origin.source, problem.origin.line or 0)))
    return LoadedRecipe(name, found.recipe, found.resolved, merged.sources)
