"""Warnings about recipe keys that are set but have no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.merge import Merged
from kernelrl_core.recipe.problems import Problem
from kernelrl_core.recipe.schema import Recipe

__all__ = ["keys_without_effect"]


def keys_without_effect(recipe: Recipe, merged: Merged, registry: Registry) -> Iterator[Problem]:
    """A warning for each key that the recipe sets to a value other than its default, and that has no effect; and one if
    no rule applies."""
    # `forbid: []` says that no rule shall apply.
    if not recipe.checkers and ("forbid",) not in merged.origins:
        known = ", ".join(f"{name}: {{use: {name}}}" for name in registry.defaults("checkers"))
        message = "the recipe has no checker, so no rule applies and no source is searched for reward hacks"
        yield Problem(merged.origin(("checkers",)), "checkers", message, f"add checkers: {{{known}}}, or forbid: []")
    plain = Recipe(
        recipe.tasks,
        recipe.backend,
        recipe.policy,
        recipe.rewards,
        evaluator=recipe.evaluator,
        advantage=recipe.advantage,
        feedback=recipe.feedback,
    )
    for keys, is_idle, why in _RULES:
        if not is_idle(recipe):
            continue
        for dotted in keys:
            path = tuple(dotted.split("."))
            if path in merged.origins and _value(recipe, path) != _default(plain, path):
                yield Problem(merged.origin(path), dotted, f"has no effect{why}")


def _value(recipe: Recipe, path: tuple[str, ...]) -> object:
    value: object = recipe
    for key in path:
        value = getattr(value, key)
    return value


def _default(plain: Recipe, path: tuple[str, ...]) -> object:
    """Default of a key; None within a mapping that is null by default."""
    value: object = plain
    for key in path:
        value = getattr(value, key, None)
    return value


def _extended_too_late(recipe: Recipe) -> bool:
    extend, steps = recipe.sampling.extend, recipe.train.steps
    return extend is not None and steps is not None and extend.after_step >= steps


def _no_beam(recipe: Recipe) -> bool:
    return recipe.eval.search is not None and recipe.eval.search.method != "beam"


def _beyond_context(recipe: Recipe) -> bool:
    limit = recipe.policy.options.context_limit()
    return limit is not None and recipe.sampling.max_tokens >= limit


_RULES: tuple[tuple[tuple[str, ...], Callable[[Recipe], bool], str], ...] = (
    (
        ("history.thinking", "history.keep", "history.form", "returns.gamma", "returns.aggregate", "episode.stop"),
        lambda recipe: recipe.episode.turns == 1,
        ": an episode has one turn (episode.turns)",
    ),
    (
        ("prompt.example_turns",),
        lambda recipe: recipe.episode.turns == 1 or recipe.prompt.shots == "zero",
        ": no later turn could show an example (episode.turns, prompt.shots)",
    ),
    (
        ("train.clip_low", "train.clip_high"),
        lambda recipe: recipe.train.loss == "importance_sampling",
        ": importance_sampling clips nothing (train.loss)",
    ),
    (
        ("sampling.top_p", "sampling.top_k"),
        lambda recipe: not recipe.sampling.temperature,
        ": temperature 0 takes the most probable token (sampling.temperature)",
    ),
    (("sampling.extend",), _extended_too_late, ": the run ends before that step (train.steps)"),
    (
        (
            "evaluation.timing_method",
            "evaluation.timing_trials",
            "evaluation.baseline",
            "evaluation.excessive_speedup",
        ),
        lambda recipe: not recipe.evaluation.timing,
        ": no run time is measured (evaluation.timing)",
    ),
    (
        ("verify.trials", "verify.sizes"),
        lambda recipe: not recipe.verify.train and not recipe.verify.eval,
        ": no kernel is verified (verify.train, verify.eval)",
    ),
    (("sampling.max_tokens",), _beyond_context, ": a reply ends where the context of the policy is full"),
    (
        ("eval.pass_at",),
        lambda recipe: recipe.eval.search is None and max(recipe.eval.pass_at, default=0) > recipe.eval.samples,
        " for k above the episodes per task (eval.samples)",
    ),
    (
        ("eval.pass_at",),
        lambda recipe: recipe.eval.search is not None and max(recipe.eval.pass_at, default=0) > 1,
        " for k above 1: a search is one episode per task (eval.search)",
    ),
    (("eval.search.width",), _no_beam, ": only beam continues from several kernels (eval.search.method)"),
)
"""Keys, the condition under which they have no effect, and the reason."""
