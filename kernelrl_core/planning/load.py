"""Loading of recipes: from a name or path to a checked `Recipe` and its resolved plain data."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

import kernelrl_core
from kernelrl_core.errors import LookupFailed, nearest, nearest_path, suggestion
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.differences import differences
from kernelrl_core.recipe.merge import Merged, merge_files, merge_layers, override_layers, shown_path
from kernelrl_core.recipe.problems import Origin, Problem, RecipeError
from kernelrl_core.recipe.rules.contradictions import contradictions
from kernelrl_core.recipe.rules.effects import keys_without_effect, training_without_effect
from kernelrl_core.recipe.rules.ranges import numbers_out_of_range
from kernelrl_core.recipe.schema import PromptSettings, Recipe
from kernelrl_core.recipe.structure import plain, structure_recipe

__all__ = [
    "LoadedRecipe",
    "RecipeError",
    "bundled_recipes",
    "checked_recipe",
    "differences_from_base",
    "find_recipe",
    "load_recipe",
    "merge_recipe",
    "nearest_name_or_path",
    "recipe_from_mapping",
    "recipes",
    "resolve",
]


@attrs.frozen
class LoadedRecipe:
    """A recipe without mistakes."""

    name: str
    """Stem of its file name."""
    recipe: Recipe
    resolved: dict[str, Any]
    """Plain data with all defaults and absolute paths; loads to an equal recipe."""
    sources: tuple[Path, ...]
    """Files read, base recipes first."""
    warnings: tuple[Problem, ...] = ()
    """Keys that are set and have no effect, and numbers outside of the range in which they act."""
    training_warnings: tuple[Problem, ...] = ()
    """Keys that have no effect in a training run, and settings with which the policy learns nothing."""

    def own_warnings(self) -> list[Problem]:
        """The warnings about keys of the user: an override may leave keys of a bundled recipe without effect."""
        bundled = {str(path) for path in bundled_recipes().values()}
        return [warning for warning in self.warnings if warning.origin.source not in bundled]

    def files(self) -> str:
        """The files read, the recipe first, then its base recipes."""
        bundled = set(bundled_recipes().values())
        return ", extends ".join(
            f"{shown_path(path)}{' (bundled)' if path in bundled else ''}" for path in reversed(self.sources)
        )


def load_recipe(name_or_path: str, overrides: Sequence[str] = (), *, registry: Registry) -> LoadedRecipe:
    """Read, merge and check a recipe.

    Args:
        name_or_path: an existing path, else the name of `./recipes/NAME.yaml`, else of a bundled recipe.
        overrides: `a.b=VALUE`, each key at most once.

    Raises:
        LookupFailed: there is no such recipe.
        RecipeError: lists all mistakes.
    """
    return checked_recipe(find_recipe(name_or_path).stem, merge_recipe(name_or_path, overrides), registry)


def differences_from_base(loaded: LoadedRecipe, registry: Registry) -> list[str]:
    """A line with the keys that differ from the recipe that `loaded` extends; none if it extends no recipe."""
    if len(loaded.sources) < 2:
        return []
    base = load_recipe(str(loaded.sources[-2]), registry=registry)
    found = differences(base.resolved, loaded.resolved)
    return [f"differs from {base.name} in {', '.join(found)}"] if found else []


def merge_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Merged:
    """Read and merge a recipe without a check of its keys. Arguments and errors: see `load_recipe`."""
    path = find_recipe(name_or_path)
    problems: list[Problem] = []
    layers: list[Merged] = []
    try:
        layers.append(merge_files(path, _find_base, _nearest_base))
    except RecipeError as error:
        problems.extend(error.problems)
    try:
        layers += override_layers(overrides)
    except RecipeError as error:
        problems.extend(error.problems)
    if problems:
        raise RecipeError(problems)
    return merge_layers(layers)


def recipe_from_mapping(data: Mapping[str, Any], *, registry: Registry, name: str) -> LoadedRecipe:
    """Check a recipe given as plain data, such as the saved recipe of a run.

    Raises:
        RecipeError: lists all mistakes.
    """
    return checked_recipe(name, Merged(dict(data), {(): Origin(name)}), registry)


def find_recipe(name_or_path: str) -> Path:
    """The file of a recipe, given its path, its name, or its name with `.yaml`, as in `extends`.

    Raises:
        LookupFailed: there is none; the message names the nearest recipe.
    """
    path = Path(name_or_path).expanduser()
    name = name_or_path.removesuffix(".yaml")
    local = Path("recipes") / f"{name}.yaml"
    for candidate in (path, local):
        if candidate.is_file():
            return candidate.absolute()
    bundled = bundled_recipes()
    if name in bundled:
        return bundled[name]
    if path.is_dir():
        raise LookupFailed(f"{name_or_path} is a directory, not a recipe")
    if path.stem in bundled:
        message = f"no file {name_or_path!r} here; the bundled recipe {path.stem!r} is used by its name"
        raise LookupFailed(message, fix=f"write {path.stem} in place of the path")
    hint = nearest_name_or_path(name_or_path, recipes())
    raise LookupFailed(f"no recipe {name_or_path!r}{hint}", fix="kernelrl recipes list")


def nearest_name_or_path(name_or_path: str, known: Iterable[str]) -> str:
    """End of a message about an unknown name or path: the nearest path if it is a path, else the nearest known name."""
    path = Path(name_or_path)
    close = nearest_path(path) if path.suffix or len(path.parts) > 1 else ""
    return close or f"; {suggestion(path.stem, known)}"


def recipes() -> dict[str, Path]:
    """Name -> file of all recipes; one in `./recipes` hides a bundled one of the same name."""
    return bundled_recipes() | _in_directory(Path("recipes"))


def bundled_recipes() -> dict[str, Path]:
    """Name -> file of all bundled recipes, ordered by name."""
    package = Path(kernelrl_core.__file__).parent
    # In an editable checkout the recipes are beside the package, not inside it.
    directory = next((d for d in (package / "recipes", package.parent / "recipes") if d.is_dir()), package / "recipes")
    return _in_directory(directory)


def _in_directory(directory: Path) -> dict[str, Path]:
    return {path.stem: path.absolute() for path in sorted(directory.glob("*.yaml")) if path.is_file()}


def resolve(recipe: Recipe) -> dict[str, Any]:
    """The whole recipe as plain data, with all defaults."""
    return {field.name: plain(getattr(recipe, field.name)) for field in attrs.fields(Recipe)}


def _find_base(name: str, including: Path) -> Path | None:
    beside, bundled = including.parent / Path(name).expanduser(), bundled_recipes().get(name.removesuffix(".yaml"))
    for candidate in (beside, beside.with_name(f"{beside.name}.yaml")):
        found = candidate.resolve()  # one path per file, so that cycles are found
        # In a file with the name of a bundled recipe, this name means the bundled one.
        if found.is_file() and (found != including or bundled is None):
            return found
    return bundled


def _nearest_base(name: str, including: Path) -> str:
    beside = {path.name if name.endswith(".yaml") else path.stem for path in including.parent.glob("*.yaml")}
    close = nearest(name, {*beside, *bundled_recipes()})
    return f"did you mean {close!r}?" if close else "see 'kernelrl recipes list'"


def checked_recipe(name: str, merged: Merged, registry: Registry) -> LoadedRecipe:
    """Check merged layers.

    Raises:
        RecipeError: lists all mistakes.
    """
    structured = structure_recipe(merged, registry)
    if "prompt" in structured.parts:
        structured.parts["prompt"] = _with_absolute_template(structured.parts["prompt"])
    problems = [
        *structured.problems,
        *(found.problem(merged) for found in contradictions(structured.parts, registry)),
    ]
    if problems:
        raise RecipeError(merged.ordered(problems))
    recipe = Recipe(**structured.parts)
    resolved = copy.deepcopy(resolve(recipe))
    warnings = [*keys_without_effect(recipe, merged, registry), *numbers_out_of_range(resolved, merged)]
    of_training = tuple(training_without_effect(recipe, merged, registry))
    return LoadedRecipe(name, recipe, resolved, merged.sources, tuple(warnings), of_training)


def _with_absolute_template(prompt: PromptSettings) -> PromptSettings:
    from kernelrl_core.prompts.templates import BUILTIN

    path = Path(prompt.template).expanduser()
    if prompt.template in BUILTIN or not path.is_file():
        return prompt
    return attrs.evolve(prompt, template=str(path.absolute()))
