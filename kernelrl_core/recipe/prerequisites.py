"""What this machine lacks for a recipe."""

from __future__ import annotations

from kernelrl_core.errors import MissingPrerequisite
from kernelrl_core.interfaces.requirements import missing_requirements
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.schema import Recipe

__all__ = ["missing_prerequisites", "require_prerequisites"]


def missing_prerequisites(recipe: Recipe, registry: Registry, *, policy: bool = True) -> dict[str, str]:
    """What this machine lacks for the recipe, and its fix; every component that the recipe uses is asked.

    Args:
        policy: whether the policy is asked, which judging alone does not need.
    """
    uses = [
        ("tasks", recipe.tasks),
        ("backends", recipe.backend),
        *([("policies", recipe.policy)] if policy else []),
        ("evaluators", recipe.evaluator),
        ("feedback", recipe.feedback),
        *(("rewards", use) for use in recipe.rewards.values()),
        *(("checkers", use) for use in recipe.checkers.values()),
        *(("loggers", use) for use in recipe.loggers.values()),
        *([("retrievers", recipe.retriever)] if recipe.retriever is not None else []),
    ]
    found: dict[str, str] = {}
    for kind, use in uses:
        for missing in registry.missing(registry.find(kind, use.use), use.options):
            found.setdefault(missing.what, missing.fix)
    for options in (recipe.evaluator.options, recipe.backend.options):
        for missing in missing_requirements(options.requires_for(recipe.evaluation)):
            found.setdefault(missing.what, missing.fix)
    return found


def require_prerequisites(recipe: Recipe, registry: Registry, *, policy: bool = True) -> None:
    """Refuse a recipe for which this machine lacks something; see `missing_prerequisites`.

    Raises:
        MissingPrerequisite: all of it is listed.
    """
    missing = missing_prerequisites(recipe, registry, policy=policy)
    if missing:
        raise MissingPrerequisite(
            "\n".join(f"missing: {what}" for what in missing), fix="; ".join(dict.fromkeys(missing.values()))
        )
