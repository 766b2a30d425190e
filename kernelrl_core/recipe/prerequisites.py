"""Prerequisites of a recipe that this machine lacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernelrl_core.errors import KernelRLError, MissingPrerequisite
from kernelrl_core.interfaces.requirements import missing_requirements
from kernelrl_core.plugins.boundary import plugin_boundary
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.evaluation_spec import EvaluationSpec
from kernelrl_core.recipe.schema import Recipe

__all__ = ["missing_prerequisites", "pending_preparations", "recipe_uses", "require_prerequisites"]


def recipe_uses(recipe: Recipe, *, policy: bool = True) -> Iterator[tuple[str, Use]]:
    """Kind and block of every component that a recipe uses.

    Args:
        policy: whether to include the policy, which evaluating candidates does not need.
    """
    yield "tasks", recipe.tasks
    yield "backends", recipe.backend
    if policy:
        yield "policies", recipe.policy
    yield "evaluators", recipe.evaluator
    yield "feedback", recipe.feedback
    yield from (("rewards", use) for use in recipe.rewards.values())
    yield from (("checkers", use) for use in recipe.checkers.values())
    yield from (("loggers", use) for use in recipe.loggers.values())
    if recipe.retriever is not None:
        yield "retrievers", recipe.retriever


def missing_prerequisites(uses: Iterable[tuple[str, Use]], spec: EvaluationSpec, registry: Registry) -> dict[str, str]:
    """Missing prerequisite -> fix, for the given components and for evaluating by `spec`."""
    found: dict[str, str] = {}
    here = spec.evaluator.options.settings_here(spec.settings)
    for kind, use in uses:
        if kind == "backends" and here is None:
            continue
        declared = registry.missing(registry.find(kind, use.use), use.options)
        for missing in declared:
            found.setdefault(missing.what, missing.fix)
        if kind == "tasks" and not declared and not use.options.remote():
            try:
                registry.make("tasks", use).splits()
            except MissingPrerequisite as error:
                found.setdefault(error.message, error.fix)
            except KernelRLError:
                pass  # no prerequisite; reported when the tasks are listed
    needs = [spec.evaluator.options.requires_for(spec.settings)]
    if here is not None:
        needs.append(spec.backend.options.requires_for(here))
    for requires in needs:
        for missing in missing_requirements(requires):
            found.setdefault(missing.what, missing.fix)
    backend = spec.backend.use.rpartition(":")[2]
    return {what: fix.replace("BACKEND", backend) for what, fix in found.items()}


def pending_preparations(spec: EvaluationSpec) -> list[str]:
    """A line for each part of this machine that the first use by the specification's backend will prepare.

    Raises:
        KernelRLError: the backend failed.
    """
    if spec.evaluator.options.settings_here(spec.settings) is None:
        return []
    with plugin_boundary(f"backend {spec.backend.use!r}", "found_here"):
        facts = list(spec.backend.options.found_here())
    return [f"{fact.label}: {fact.detail}" for fact in facts if fact.state == "pending"]


def require_prerequisites(uses: Iterable[tuple[str, Use]], spec: EvaluationSpec, registry: Registry) -> None:
    """Raise an error if a prerequisite is missing; see `missing_prerequisites`.

    Raises:
        MissingPrerequisite: lists all missing prerequisites.
    """
    missing = missing_prerequisites(uses, spec, registry)
    if missing:
        raise MissingPrerequisite(
            "\n".join(f"missing: {what}" for what in missing), fix="; ".join(dict.fromkeys(missing.values()))
        )
