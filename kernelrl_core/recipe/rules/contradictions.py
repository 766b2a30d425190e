"""All rules about the keys of a recipe that exclude each other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.blocks import uses
from kernelrl_core.recipe.rules import components, evaluation, prompts, ranges, rewards, tasks, training
from kernelrl_core.recipe.rules.components import own_problems
from kernelrl_core.recipe.rules.contradiction import Contradiction

__all__ = ["RULES", "contradictions"]

Rule = Callable[..., Iterator[Contradiction]]

RULES: tuple[Rule, ...] = (
    rewards.measured_times,
    rewards.needed_settings,
    rewards.reply_lengths,
    rewards.reward_of_a_hack,
    evaluation.least_precision,
    rewards.correctness_gap,
    rewards.reward_code,
    components.feedback_code,
    rewards.curriculum_stages,
    training.coverage,
    tasks.splits_and_levels,
    tasks.warm_start,
    prompts.context,
    training.length,
    ranges.number_limits,
    training.group_size,
    training.group_comparison,
    training.declared_capabilities,
    training.mismatch_bounds,
    training.optimizer,
    training.resume_and_staleness,
    training.refill,
    training.best_metric,
    training.budget,
    prompts.sampling_settings,
    prompts.template,
    evaluation.unknown_rules,
    tasks.demonstration_file,
    components.required_distributions,
)
"""The parameters of a rule are recipe keys with the types of the schema, and `registry`. A rule is skipped if one of
its keys has mistakes of its own."""


def contradictions(parts: Mapping[str, Any], registry: Registry) -> Iterator[Contradiction]:
    """All contradictions between the recipe keys in `parts`, which are those without mistakes of their own."""
    known = {**parts, "registry": registry}
    for rule in RULES:
        parameters = inspect.signature(rule).parameters
        if all(name in known for name in parameters):
            yield from rule(**{name: known[name] for name in parameters})
    for path, use in uses(parts):
        yield from own_problems(path, use)
