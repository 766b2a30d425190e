"""Warnings about recipe keys that are set but have no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import attrs

from kernelrl_core.algorithms.learning_rates import warmup_steps
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.blocks import uses
from kernelrl_core.recipe.merge import Merged
from kernelrl_core.recipe.problems import Problem
from kernelrl_core.recipe.schema import LastHistory, Recipe
from kernelrl_core.tasks.schedule import repeats_tasks
from kernelrl_core.tasks.selection import listed, training_tasks

__all__ = ["keys_without_effect", "training_without_effect"]

IdleRule: TypeAlias = tuple[tuple[str, ...], Callable[[Recipe], bool], str]
"""Keys, the condition under which they have no effect, and the reason."""


def keys_without_effect(recipe: Recipe, merged: Merged, registry: Registry) -> Iterator[Problem]:
    """A warning for each key that the recipe sets to a value other than its default, and that has no effect; and one if
    no rule applies."""
    # `forbid: []` says that no rule shall apply.
    if not recipe.checkers and ("forbid",) not in merged.origins:
        known = ", ".join(f"{name}: {{use: {name}}}" for name in registry.defaults("checkers"))
        message = "the recipe has no checker, so no rule applies and no source is searched for reward hacks"
        yield Problem(merged.origin(("checkers",)), "checkers", message, f"add checkers: {{{known}}}, or forbid: []")
    yield from _idle_keys(_RULES, recipe, merged)
    yield from _idle_options(recipe, merged)


def training_without_effect(recipe: Recipe, merged: Merged, registry: Registry) -> Iterator[Problem]:
    """A warning for each key that the recipe sets and that has no effect in a training run, and for settings with which
    the policy learns nothing. `kernelrl eval` uses some of these keys."""
    yield from _idle_keys(_TRAINING_RULES, recipe, merged)
    for dotted, is_idle, message in _NO_LEARNING:
        path = tuple(dotted.split("."))
        if is_idle(recipe):
            yield Problem(merged.origin(path), dotted, message)
    stages = recipe.curriculum.stages if recipe.curriculum is not None else ()
    for name, use in recipe.rewards.items():
        if use.weight == 0 and not any(stage.weights.get(name) for stage in stages):
            path = ("rewards", name, "weight")
            message = "is 0: the reward is recorded and has no effect on the score"
            yield Problem(merged.origin(path), ".".join(path), message)
    yield from _more_than_tasks(recipe, merged, registry)


def _idle_keys(rules: Sequence[IdleRule], recipe: Recipe, merged: Merged) -> Iterator[Problem]:
    plain = Recipe(
        recipe.tasks,
        recipe.backend,
        recipe.policy,
        recipe.rewards,
        evaluator=recipe.evaluator,
        advantage=recipe.advantage,
        feedback=recipe.feedback,
    )
    for keys, is_idle, why in rules:
        if not is_idle(recipe):
            continue
        for dotted in keys:
            path = tuple(dotted.split("."))
            if path in merged.origins and _value(recipe, path) != _default(plain, path):
                yield Problem(merged.origin(path), dotted, f"has no effect{why}")


def _idle_options(recipe: Recipe, merged: Merged) -> Iterator[Problem]:
    """A warning for each option of a component that has no effect beside its other options."""
    parts = {field.name: getattr(recipe, field.name) for field in attrs.fields(Recipe)}
    for place, use in uses(parts):
        try:
            idle = dict(use.options.idle_options())
        except Exception:  # plugin code; `kernelrl plugins check` reports it
            continue
        defaults = {field.name: field.default for field in attrs.fields(type(use.options))}
        for option, why in idle.items():
            path = (*place, option)
            if path in merged.origins and getattr(use.options, option) != defaults[option]:
                yield Problem(merged.origin(path), ".".join(path), f"has no effect: {why}")


def _more_than_tasks(recipe: Recipe, merged: Merged, registry: Registry) -> Iterator[Problem]:
    """A warning if a batch, or a held-out evaluation, is larger than its split."""
    if recipe.tasks.options.remote():
        return
    try:
        source = registry.make("tasks", recipe.tasks)
        n_tasks = len(listed(source, recipe.train.split))
        # Exclusions take time to find, and never take as many tasks.
        if n_tasks < _MANY_BATCHES * recipe.train.tasks_per_step:
            n_tasks = len(training_tasks(source, recipe.train, recipe.eval.split)[0])
        n_held_out = len(listed(source, recipe.eval.split)) if recipe.eval.max_tasks is not None else None
    except Exception:  # plugin code or a missing prerequisite; reported by other rules
        return
    if repeats_tasks(n_tasks, recipe.train):
        path = ("train", "tasks_per_step")
        message = (
            f"{recipe.train.tasks_per_step} is more than the {n_tasks} tasks of the split: tasks repeat in a batch"
        )
        yield Problem(merged.origin(path), "train.tasks_per_step", message)
    if n_held_out is not None and recipe.eval.max_tasks is not None and recipe.eval.max_tasks > n_held_out:
        path = ("eval", "max_tasks")
        message = f"has no effect: split {recipe.eval.split!r} has {n_held_out} tasks"
        yield Problem(merged.origin(path), "eval.max_tasks", message)


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


def _searches_without(method: str) -> Callable[[Recipe], bool]:
    """Whether a recipe searches with another method."""
    return lambda recipe: recipe.eval.search is not None and recipe.eval.search.method != method


def _beyond_context(recipe: Recipe) -> bool:
    limit = recipe.policy.options.context_limit()
    return limit is not None and recipe.sampling.max_tokens >= limit


_MANY_BATCHES = 4
"""Number of batches in a split that is larger than a batch whatever tasks are excluded."""


def _samples_per_step(recipe: Recipe) -> int:
    return recipe.train.tasks_per_step * recipe.train.group_size * recipe.episode.turns


def _evaluates(recipe: Recipe) -> bool:
    settings, steps = recipe.eval, recipe.train.steps
    within = settings.every > 0 and (steps is None or settings.every <= steps)
    return settings.at_start or settings.at_end or within


def _eval_temperature(recipe: Recipe) -> float:
    own = recipe.eval.temperature
    return recipe.sampling.temperature if own is None else own


def _no_warmup_step(recipe: Recipe) -> bool:
    steps = recipe.train.steps
    return steps is not None and warmup_steps(recipe.train, steps) == 0


def _after_last_step(recipe: Recipe, step: int) -> bool:
    return recipe.train.steps is not None and step > recipe.train.steps


def _keeps_all(recipe: Recipe) -> bool:
    keep, turns = recipe.history.keep, recipe.episode.turns
    return turns > 1 and isinstance(keep, LastHistory) and keep.last >= turns - 1


_RULES: tuple[IdleRule, ...] = (
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
            "eval.fast_thresholds",
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
    (("eval.search.width",), _searches_without("beam"), ": only beam has a width (eval.search.method)"),
    (
        ("eval.search.islands", "eval.search.parents", "eval.search.migrate_every"),
        _searches_without("islands"),
        ": only islands has populations (eval.search.method)",
    ),
)
"""Keys, the condition under which they have no effect, and the reason."""

_TRAINING_RULES: tuple[IdleRule, ...] = (
    (
        ("eval.every",),
        lambda recipe: _after_last_step(recipe, recipe.eval.every),
        ": the run ends before (train.steps)",
    ),
    (
        (
            "eval.samples",
            "eval.temperature",
            "eval.search",
            "eval.max_tasks",
            "eval.pass_at",
            "eval.fast_thresholds",
            "verify.eval",
        ),
        lambda recipe: not _evaluates(recipe),
        " in training: the run makes no held-out evaluation (eval.every, eval.at_start, eval.at_end)",
    ),
    (
        ("eval.samples",),
        lambda recipe: _evaluates(recipe) and _eval_temperature(recipe) == 0 and recipe.eval.samples > 1,
        " above 1: at temperature 0 all episodes of a task are equal (eval.temperature)",
    ),
    (
        ("train.substeps",),
        lambda recipe: recipe.train.substeps > _samples_per_step(recipe),
        " above the number of training samples of a step, which is the largest number of optimizer steps",
    ),
    (("train.warmup_ratio",), _no_warmup_step, ": the share is less than one step (train.steps)"),
    (
        ("train.learning_rate_floor",),
        lambda recipe: recipe.train.learning_rate_schedule == "constant",
        ": the learning rate does not fall (train.learning_rate_schedule)",
    ),
    (
        ("train.shuffle",),
        lambda recipe: recipe.curriculum is not None and recipe.curriculum.difficulty is not None,
        ": tasks are drawn by difficulty (curriculum.difficulty)",
    ),
    (
        ("train.checkpoint_every",),
        lambda recipe: _after_last_step(recipe, recipe.train.checkpoint_every),
        ": the run ends before, with the checkpoint of the last step (train.steps)",
    ),
    (
        ("sampling.concurrency",),
        lambda recipe: (
            recipe.sampling.concurrency is not None
            and recipe.train.staleness == 0
            and recipe.sampling.concurrency >= recipe.train.tasks_per_step * recipe.train.group_size
        ),
        ": a step has no more episodes (train.tasks_per_step, train.group_size)",
    ),
    (("history.keep",), _keeps_all, ": an episode has no more earlier turns (episode.turns)"),
)
"""The same for keys that act in a training run only."""

_NO_LEARNING: tuple[tuple[str, Callable[[Recipe], bool], str], ...] = (
    (
        "sampling.temperature",
        lambda recipe: not recipe.sampling.temperature,
        "is 0: all replies to a prompt are equal, so the episodes of a group are equal and the policy learns nothing",
    ),
    (
        "train.learning_rate",
        lambda recipe: not recipe.train.learning_rate,
        "is 0: the policy learns nothing",
    ),
    ("train.steps", lambda recipe: recipe.train.steps == 0, "is 0: the policy learns nothing"),
)
"""Key, condition, and the reason why the policy learns nothing."""
