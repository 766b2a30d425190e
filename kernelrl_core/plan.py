"""What a recipe would do, found out without a key, a GPU or the network."""

from __future__ import annotations

from typing import Any

from kernelrl_core.audits import training_tasks
from kernelrl_core.curricula import Course
from kernelrl_core.environment import missing_prerequisites, require_prerequisites
from kernelrl_core.errors import KernelRLError
from kernelrl_core.heldout import eval_tasks
from kernelrl_core.prompting import Composer
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.registry import Registry
from kernelrl_core.values import Task

__all__ = ["plan", "plan_lines", "preflight"]

CHARACTERS_PER_TOKEN = 3.5
"""Rough figure for code; the policy's tokenizer is not loaded for a plan."""


def preflight(recipe: Recipe, registry: Registry) -> None:
    """Find out what would stop a run before anything is written or spent.

    Raises:
        MissingPrerequisite: this machine lacks something.
        UsageError: an empty split, or contradictions in the batches.
    """
    require_prerequisites(recipe, registry)
    tasks = registry.make("tasks", recipe.tasks)
    Course(training_tasks(tasks, recipe.train)[0], recipe)
    if recipe.eval.every or recipe.eval.at_start or recipe.eval.at_end:
        eval_tasks(tasks, recipe.eval)


def plan(name: str, recipe: Recipe, registry: Registry) -> dict[str, Any]:
    """Size of the run; None where a missing part leaves it unknown.

    Raises:
        UsageError: an empty split, or contradictions in the batches.
    """
    missing = [f"{what}; fix: {fix}" for what, fix in missing_prerequisites(recipe, registry).items()]
    tasks: list[Task] | None = None
    try:
        tasks = list(training_tasks(registry.make("tasks", recipe.tasks), recipe.train)[0])
    except KernelRLError as error:
        missing.append(f"{recipe.tasks.use}: {error}".replace("\n", "; "))
    steps = Course(tasks, recipe).n_steps if tasks is not None else None
    per_step = recipe.train.tasks_per_step * recipe.train.group_size * recipe.episode.turns
    prompt = _prompt_tokens(recipe, registry, tasks or [])
    samples = per_step * steps if steps is not None else None
    return {
        "recipe": name,
        "tasks": len(tasks) if tasks is not None else None,
        "steps": steps,
        "tasks_per_step": recipe.train.tasks_per_step,
        "group_size": recipe.train.group_size,
        "turns": recipe.episode.turns,
        "samples_per_step": per_step,
        "samples": samples,
        "prompt_tokens": round(prompt * samples) if prompt is not None and samples is not None else None,
        "reply_tokens_at_most": recipe.sampling.max_tokens * samples if samples is not None else None,
        "missing": missing,
    }


def plan_lines(facts: dict[str, Any]) -> list[str]:
    """A plan for people."""
    lines = [f"{key.replace('_', ' '):<22}{_shown(value)}" for key, value in facts.items() if key != "missing"]
    lines.append("token counts are estimates; prompts of later turns grow with their history")
    return lines + [f"missing: {item}" for item in facts["missing"]]


def _prompt_tokens(recipe: Recipe, registry: Registry, tasks: list[Task]) -> float | None:
    """Mean estimate for a first turn."""
    if not tasks:
        return None
    try:
        backend = registry.make("backends", recipe.backend)
        composer = Composer(recipe.prompt, recipe.history, backend.facts, (), recipe.evaluation)
        prompts = [composer.messages(task) for task in tasks[:20]]
    except KernelRLError:
        return None
    size = sum(len(message.content) for prompt in prompts for message in prompt)
    return size / len(prompts) / CHARACTERS_PER_TOKEN


def _shown(value: Any) -> str:
    return "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
