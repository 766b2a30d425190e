"""Names that the shell completes: one function for each kind of parameter, named like the parameter."""

from __future__ import annotations

from kernelrl_core.planning.load import recipes
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.directory import list_runs
from kernelrl_core.tasks.lookup import plain_sources

__all__ = ["backend", "evaluator", "kind", "plugin", "recipe", "recipe_or_run", "run", "task"]


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


def task() -> list[str]:
    """The tasks of the installed sources that need no options."""
    sources = plain_sources(registry())
    return [found.id for source in sources for split in source.splits() for found in source.tasks(split)]


def backend() -> list[str]:
    """The installed backends."""
    return _labels("backends")


def evaluator() -> list[str]:
    """The installed evaluators."""
    return _labels("evaluators")


def _labels(kind: str) -> list[str]:
    return sorted(registry().label(kind, component) for component in registry().components(kind))


def kind() -> list[str]:
    """The kinds of components."""
    return list(KINDS_BY_NAME)
