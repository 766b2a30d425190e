"""Names that the shell completes: one function for each kind of parameter, named like the parameter."""

from __future__ import annotations

from kernelrl_core.planning.load import recipes
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.directory import list_runs

__all__ = ["kind", "plugin", "recipe", "recipe_or_run", "run"]


def run() -> list[str]:
    """The runs below ./runs."""
    return [found.name for found in list_runs()]


def recipe() -> list[str]:
    """The recipes of ./recipes and the bundled ones."""
    return sorted(recipes())


def recipe_or_run() -> list[str]:
    """Recipes, then runs."""
    return [*recipe(), *run()]


def plugin() -> list[str]:
    """The installed plugins."""
    return [found.name for found in registry().plugins]


def kind() -> list[str]:
    """The kinds of components."""
    return list(KINDS_BY_NAME)
