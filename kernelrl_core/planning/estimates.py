"""Upper estimate of the cost of a recipe: every reply has the maximum length."""

from __future__ import annotations

from collections.abc import Sequence

from kernelrl_core.monitoring.costs import Spent, prices_of, spent_on_training
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.schema import LastHistory, Recipe

__all__ = ["evaluates_on_gpu", "spent_at_most"]

HISTORY_TOKENS_PER_TURN = 1200
"""Assumed tokens of an earlier turn in a prompt: its kernel and feedback, without thinking."""


def spent_at_most(
    recipe: Recipe, prompt_tokens: float, *, episodes: int, steps: Sequence[range], on_gpu: bool, trains: bool
) -> Spent:
    """Upper estimate of the amounts that some steps spend.

    Args:
        prompt_tokens: mean prompt tokens of a first turn.
        episodes: episodes per step.
        steps: the steps, or the numbers of updates before held-out evaluations; each may have its own reply limit.
            As ranges, so that the estimate takes the same time for any number of steps.
        on_gpu: kernels are evaluated on a GPU.
        trains: every sample is trained on once, and scored for `train.mismatch` and `train.kl`.
    """
    turns = recipe.episode.turns
    keep = recipe.history.keep
    shown = [min(turn, keep.last) if isinstance(keep, LastHistory) else turn for turn in range(turns)]
    prompts = [prompt_tokens + n * HISTORY_TOKENS_PER_TURN for n in shown]
    if recipe.prompt.max_tokens is not None:
        prompts = [min(tokens, recipe.prompt.max_tokens) for tokens in prompts]
    n_steps = sum(map(len, steps))
    extend = recipe.sampling.extend
    n_extended = sum(_n_from(part, extend.after_step) for part in steps) if extend is not None else 0
    extended_limit = extend.max_tokens if extend is not None else 0
    limits = recipe.sampling.max_tokens * (n_steps - n_extended) + extended_limit * n_extended
    read = round(sum(prompts) * episodes * n_steps)
    sampled = limits * episodes * turns
    gpu = recipe.cost.gpu_seconds_per_evaluation * episodes * turns * n_steps if on_gpu else 0.0
    training = spent_on_training(read + sampled, recipe.train, scored=read + sampled) if trains else Spent()
    return Spent(read, sampled, gpu_seconds=gpu) + training


def _n_from(steps: range, first: int) -> int:
    """Number of elements of an ascending range that are at least `first`."""
    skipped = max(0, -(-(first - steps.start) // steps.step))
    return max(0, len(steps) - skipped)


def evaluates_on_gpu(recipe: Recipe, registry: Registry) -> bool:
    """Whether the recipe evaluates kernels on a GPU, or has a price for GPU hours."""
    needs = [prices_of(recipe).gpu_hour is not None]
    for kind, use in (("backends", recipe.backend), ("evaluators", recipe.evaluator)):
        needs.append(bool(registry.find(kind, use.use).requires.gpu))
        needs += [bool(use.options.requires().gpu), bool(use.options.requires_for(recipe.evaluation).gpu)]
    return any(needs)
