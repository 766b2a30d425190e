"""What a recipe will cost, before anything is spent: at most, as far as replies are concerned."""

from __future__ import annotations

from kernelrl_core.monitoring.costs import Spent, prices_of, spent_on_training
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.schema import LastHistory, Recipe
from kernelrl_core.rollout.episode import reply_limit

__all__ = ["judges_on_gpu", "spent_at_most"]

HISTORY_TOKENS_PER_TURN = 1200
"""A kernel and what was said of it, as later prompts show them; thinking that is kept comes on top."""


def spent_at_most(
    recipe: Recipe, prompt_tokens: float, *, attempts: int, steps: range, on_gpu: bool, trains: bool
) -> Spent:
    """Amounts for so many attempts in each of some steps, if every reply is as long as it may be.

    Args:
        prompt_tokens: of a first turn, in the mean.
        attempts: attempts of a step.
        on_gpu: kernels are judged on a GPU.
        trains: every sample is trained on, once, and scored as `train.mismatch` and `train.kl` want it.
    """
    turns = recipe.episode.turns
    keep = recipe.history.keep
    shown = [min(turn, keep.last) if isinstance(keep, LastHistory) else turn for turn in range(turns)]
    prompts = [prompt_tokens + n * HISTORY_TOKENS_PER_TURN for n in shown]
    if recipe.prompt.max_tokens is not None:
        prompts = [min(tokens, recipe.prompt.max_tokens) for tokens in prompts]
    read = round(sum(prompts) * attempts * len(steps))
    drawn = sum(reply_limit(recipe, step) for step in steps) * attempts * turns
    gpu = recipe.cost.gpu_seconds_per_evaluation * attempts * turns * len(steps) if on_gpu else 0.0
    learnt = spent_on_training(read + drawn, recipe.train, scored=read + drawn) if trains else Spent()
    return Spent(read, drawn, gpu_seconds=gpu) + learnt


def judges_on_gpu(recipe: Recipe, registry: Registry) -> bool:
    """Whether the recipe needs a GPU for kernels, or pays for one."""
    needs = [prices_of(recipe).gpu_hour is not None]
    for kind, use in (("backends", recipe.backend), ("evaluators", recipe.evaluator)):
        needs.append(bool(registry.find(kind, use.use).requires.gpu))
        needs += [bool(use.options.requires().gpu), bool(use.options.requires_for(recipe.evaluation).gpu)]
    return any(needs)
