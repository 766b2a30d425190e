"""What a recipe would do, found out without a key, a GPU or the network."""

from __future__ import annotations

from typing import Any

from kernelrl_core.errors import KernelRLError
from kernelrl_core.monitoring.costs import Spent, prices_of
from kernelrl_core.planning.estimates import judges_on_gpu, spent_at_most
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.prompts import Composer
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.recipe.prerequisites import missing_prerequisites, recipe_uses, require_prerequisites
from kernelrl_core.recipe.schema import PriceSettings, Recipe
from kernelrl_core.tasks.curriculum import TaskSchedule
from kernelrl_core.tasks.selection import eval_tasks, training_tasks
from kernelrl_core.types import Task

__all__ = ["budget_lines", "plan", "plan_notes", "plan_rows", "preflight"]

CHARACTERS_PER_TOKEN = 3.5
"""Rough figure for code; the policy's tokenizer is not loaded for a plan."""


ASSUMED_PROMPT_TOKENS = 2000
"""Of a first turn, where the tasks cannot be read."""


def preflight(recipe: Recipe, registry: Registry) -> None:
    """Find out what would stop a run before anything is written or spent.

    Raises:
        MissingPrerequisite: this machine lacks something.
        UsageError: an empty split, or contradictions in the batches.
    """
    require_prerequisites(recipe_uses(recipe), spec_of(recipe), registry)
    tasks = registry.make("tasks", recipe.tasks)
    TaskSchedule(training_tasks(tasks, recipe.train)[0], recipe)
    if recipe.eval.every or recipe.eval.at_start or recipe.eval.at_end:
        eval_tasks(tasks, recipe.eval)


def plan(name: str, recipe: Recipe, registry: Registry) -> dict[str, Any]:
    """Size of the run; None where a missing part leaves it unknown.

    Raises:
        UsageError: an empty split, or contradictions in the batches.
    """
    missing = [
        f"{what}; fix: {fix}"
        for what, fix in missing_prerequisites(recipe_uses(recipe), spec_of(recipe), registry).items()
    ]
    tasks: list[Task] | None = None
    try:
        tasks = list(training_tasks(registry.make("tasks", recipe.tasks), recipe.train)[0])
    except KernelRLError as error:
        told = str(error) if error.message.startswith(f"{recipe.tasks.use}:") else f"{recipe.tasks.use}: {error}"
        missing.append(told.replace("\n", "; "))
    steps = TaskSchedule(tasks, recipe).n_steps if tasks is not None else recipe.train.steps
    per_step = recipe.train.tasks_per_step * recipe.train.group_size * recipe.episode.turns
    known = _prompt_tokens(recipe, registry, tasks or [])
    prompt = ASSUMED_PROMPT_TOKENS if known is None else known
    samples = per_step * steps if steps is not None else None
    facts: dict[str, Any] = {
        "recipe": name,
        "tasks": len(tasks) if tasks is not None else None,
        "steps": steps,
        "tasks_per_step": recipe.train.tasks_per_step,
        "group_size": recipe.train.group_size,
        "turns": recipe.episode.turns,
        "samples_per_step": per_step,
        "samples": samples,
    }
    on_gpu, prices = judges_on_gpu(recipe, registry), prices_of(recipe)
    attempts = recipe.train.tasks_per_step * recipe.train.group_size
    one = spent_at_most(recipe, prompt, attempts=attempts, steps=range(1), on_gpu=on_gpu, trains=True)
    facts |= _amounts("_per_step", one, prices) | _amounts("", None, prices) | {"budget_usd": recipe.cost.budget_usd}
    if steps is not None:
        whole = spent_at_most(recipe, prompt, attempts=attempts, steps=range(steps), on_gpu=on_gpu, trains=True)
        held_out = _held_out_attempts(recipe, registry, steps)
        whole += spent_at_most(recipe, prompt, attempts=held_out, steps=range(1), on_gpu=on_gpu, trains=False)
        facts |= _amounts("", whole, prices)
    return facts | {"missing": missing}


def _amounts(of: str, spent: Spent | None, prices: PriceSettings) -> dict[str, Any]:
    return {
        f"prompt_tokens{of}": spent and spent.prompt_tokens,
        f"reply_tokens{of}_at_most": spent and spent.reply_tokens,
        f"train_tokens{of}_at_most": spent and spent.train_tokens,
        f"scored_tokens{of}_at_most": spent and spent.scored_tokens,
        f"gpu_seconds{of}": spent and round(spent.gpu_seconds),
        f"usd{of}_at_most": spent and spent.usd(prices),
    }


def plan_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """A plan for people: label and value of each line."""
    hidden = {"missing"} | ({"budget_usd"} if facts["budget_usd"] is None else set())
    hidden |= {key for key in facts if key.startswith("scored_tokens") and not facts["scored_tokens_per_step_at_most"]}
    return [(key.replace("_", " "), _shown(value)) for key, value in facts.items() if key not in hidden]


def plan_notes(facts: dict[str, Any]) -> list[str]:
    """Sentences below a plan: what its figures assume, and what is missing."""
    lines = ["amounts are estimates: every reply as long as it may be, every sample trained on"]
    if facts["tasks"] is None:
        lines.append(
            f"no task was read: prompts of {ASSUMED_PROMPT_TOKENS:,} tokens are assumed, evaluation is left out"
        )
    if facts["usd_per_step_at_most"] is None:
        lines.append("prices are unknown: set cost.prices to know the cost")
    lines += budget_lines(facts)
    return lines + [f"missing: {item}" for item in facts["missing"]]


def budget_lines(facts: dict[str, Any]) -> list[str]:
    """What there is to say of the budget: that the run may cost more."""
    budget, usd = facts["budget_usd"], facts["usd_at_most"]
    if budget is None or usd is None or budget >= usd:
        return []
    return [
        f"budget: cost.budget_usd, {budget:,.2f} USD, is below the {usd:,.2f} USD that the run may cost; "
        "the run stops when it is spent"
    ]


def _held_out_attempts(recipe: Recipe, registry: Registry, steps: int) -> int:
    """Attempts of all evaluations of the run."""
    settings = recipe.eval
    times = int(settings.at_start) + (steps // settings.every if settings.every else 0)
    times += settings.at_end and not (settings.every and steps % settings.every == 0)
    if not times:
        return 0
    try:
        return times * settings.samples * len(eval_tasks(registry.make("tasks", recipe.tasks), settings))
    except KernelRLError:
        return 0


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
    if isinstance(value, float):
        return f"{value:,.2f}"
    return "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
