"""Dry-run plan of a recipe: size, cost and missing prerequisites, without API key, GPU or network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelrl_core.environment.retrieval import SAMPLED_TASKS, make_retrieval
from kernelrl_core.errors import KernelRLError, more
from kernelrl_core.monitoring.costs import Spent, prices_of
from kernelrl_core.planning.estimates import evaluates_on_gpu, spent_at_most
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.prompts import Composer
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.recipe.prerequisites import (
    missing_prerequisites,
    pending_preparations,
    recipe_uses,
    require_prerequisites,
)
from kernelrl_core.recipe.schema import PriceSettings, Recipe
from kernelrl_core.rollout.episode import reply_limit
from kernelrl_core.tasks.curriculum import TaskSchedule
from kernelrl_core.tasks.selection import eval_tasks, training_tasks
from kernelrl_core.types import Example, Message, Task

__all__ = ["budget_lines", "example_prompt", "plan", "plan_notes", "plan_rows", "preflight"]

CHARACTERS_PER_TOKEN = 3.5
"""Assumed for code; a plan does not load the policy's tokenizer."""


ASSUMED_PROMPT_TOKENS = 2000
"""Assumed prompt tokens of a first turn, if the tasks cannot be read."""


def preflight(recipe: Recipe, registry: Registry) -> None:
    """Raise the errors that would stop a run, before anything is written or spent.

    Raises:
        MissingPrerequisite: lists all missing prerequisites.
        UsageError: an empty split, or contradictions in the batches.
    """
    require_prerequisites(recipe_uses(recipe), spec_of(recipe), registry)
    tasks = registry.make("tasks", recipe.tasks)
    TaskSchedule(training_tasks(tasks, recipe.train, recipe.eval.split)[0], recipe)
    if recipe.eval.every or recipe.eval.at_start or recipe.eval.at_end:
        eval_tasks(tasks, recipe.eval)


def plan(name: str, recipe: Recipe, registry: Registry) -> dict[str, Any]:
    """Size and cost estimate of the run, as flat facts; None for facts that a missing prerequisite leaves unknown.

    Raises:
        UsageError: an empty split, or contradictions in the batches.
    """
    missing = [
        f"{what}; fix: {fix}"
        for what, fix in missing_prerequisites(recipe_uses(recipe), spec_of(recipe), registry).items()
    ]
    tasks: list[Task] | None = None
    try:
        tasks = list(training_tasks(registry.make("tasks", recipe.tasks), recipe.train, recipe.eval.split)[0])
    except KernelRLError as error:
        text = str(error) if error.message.startswith(f"{recipe.tasks.use}:") else f"{recipe.tasks.use}: {error}"
        if (line := text.replace("\n", "; ")) not in missing:
            missing.append(line)
    steps = TaskSchedule(tasks, recipe).n_steps if tasks is not None else recipe.train.steps
    per_step = recipe.train.tasks_per_step * recipe.train.group_size * recipe.episode.turns
    sampled = (tasks or [])[:SAMPLED_TASKS]
    examples, retrieved = _examples(recipe, registry, sampled, missing)
    known = _prompt_tokens(recipe, registry, sampled, examples)
    prompt = ASSUMED_PROMPT_TOKENS if known is None else known
    samples = per_step * steps if steps is not None else None
    held_out, updates = _held_out(recipe, registry, steps)
    held_out_episodes = held_out and held_out * len(updates) * recipe.eval.samples
    facts: dict[str, Any] = {
        "recipe": name,
        "policy": recipe.policy.use,
        "model": getattr(recipe.policy.options, "model", None),
        "backend": recipe.backend.use,
        "evaluator": recipe.evaluator.use,
        "rewards": {name: use.weight for name, use in recipe.rewards.items()},
        "splits": {"train": recipe.train.split, "held_out": recipe.eval.split},
        "tasks": len(tasks) if tasks is not None else None,
        "steps": steps,
        "tasks_per_step": recipe.train.tasks_per_step,
        "group_size": recipe.train.group_size,
        "turns": recipe.episode.turns,
        "samples_per_step": per_step,
        "samples": samples,
        "held_out_tasks": held_out,
        "held_out_samples": held_out_episodes and held_out_episodes * recipe.episode.turns,
        **retrieved,
    }
    on_gpu, prices = evaluates_on_gpu(recipe, registry), prices_of(recipe)
    episodes = recipe.train.tasks_per_step * recipe.train.group_size
    longest = max(range(steps or 1), key=lambda step: reply_limit(recipe, step))
    one = spent_at_most(recipe, prompt, episodes=episodes, steps=[longest], on_gpu=on_gpu, trains=True)
    facts |= _amounts("_per_step", one, prices) | _amounts("", None, prices) | {"budget_usd": recipe.cost.budget_usd}
    if steps is not None:
        whole = spent_at_most(recipe, prompt, episodes=episodes, steps=range(steps), on_gpu=on_gpu, trains=True)
        of_one = (held_out or 0) * recipe.eval.samples
        whole += spent_at_most(recipe, prompt, episodes=of_one, steps=updates, on_gpu=on_gpu, trains=False)
        facts |= _amounts("", whole, prices)
    return facts | {"pending": pending_preparations(recipe), "missing": missing}


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
    """Label and value of each line of a plan."""
    hidden = {"missing", "pending", "seconds", "seconds_from", "prompt"} | (
        {"budget_usd"} if facts["budget_usd"] is None else set()
    )
    hidden |= {"model"} if facts["model"] is None else set()
    hidden |= {key for key in facts if key.startswith("scored_tokens") and not facts["scored_tokens_per_step_at_most"]}
    unpriced = facts["usd_per_step_at_most"] is None
    return [
        (key.replace("_", " "), "no prices set" if unpriced and key.startswith("usd_") else _shown(value))
        for key, value in facts.items()
        if key not in hidden
    ]


def plan_notes(facts: dict[str, Any]) -> list[str]:
    """Lines below a plan: its assumptions, pending preparations, and the missing prerequisites."""
    lines = ["estimates assume that every reply has the maximum length and every sample is trained on"]
    if facts["tasks"] is None:
        lines.append(
            f"no task was read: prompts of {ASSUMED_PROMPT_TOKENS:,} tokens are assumed, "
            "held-out evaluation is excluded"
        )
    if facts["usd_per_step_at_most"] is None:
        lines.append("no prices set: the cost is 0 if policy and evaluator run locally, else set cost.prices")
    lines += budget_lines(facts)
    lines += [*facts["pending"], *(f"missing: {item}" for item in facts["missing"])]
    return [*lines, more("missing-prerequisite")] if facts["missing"] else lines


def budget_lines(facts: dict[str, Any]) -> list[str]:
    """A warning if the estimated cost exceeds the budget."""
    budget, usd = facts["budget_usd"], facts["usd_at_most"]
    if budget is None or usd is None or budget >= usd:
        return []
    return [
        f"warning: cost.budget_usd, {budget:,.2f} USD, is below the estimated maximum cost of {usd:,.2f} USD; "
        "the run stops when the budget is spent"
    ]


def _held_out(recipe: Recipe, registry: Registry, steps: int | None) -> tuple[int | None, list[int]]:
    """Number of held-out tasks, None if they cannot be read, and the numbers of updates before each held-out
    evaluation of the run."""
    due = (n for n in range(1, (steps or 0) + 1) if recipe.eval.is_due(n, steps or 0))
    updates = [*([0] if recipe.eval.at_start else []), *due]
    if not updates:
        return 0, []
    try:
        return len(eval_tasks(registry.make("tasks", recipe.tasks), recipe.eval)), updates
    except KernelRLError:
        return None, updates


def example_prompt(recipe: Recipe, registry: Registry) -> tuple[Message, ...]:
    """The messages of the first turn for the first training task, before the policy's chat template.

    Raises:
        KernelRLError: the tasks, the backend, a checker or the retriever cannot be used.
    """
    tasks = registry.make("tasks", recipe.tasks)
    task = training_tasks(tasks, recipe.train, recipe.eval.split)[0][0]
    known = {rule.id: rule for use in recipe.checkers.values() for rule in registry.make("checkers", use).rules}
    stated = tuple(known[id_] for id_ in recipe.forbid if id_ in known)
    backend = registry.make("backends", recipe.backend)
    composer = Composer(recipe.prompt, recipe.history, backend.facts, stated, recipe.evaluation)
    retrieval = make_retrieval(recipe, registry, tasks, lambda kernel, reference: False)
    return composer.messages(task, examples=retrieval.search(task).examples if retrieval is not None else ())


def _examples(
    recipe: Recipe, registry: Registry, tasks: Sequence[Task], missing: list[str]
) -> tuple[Sequence[Sequence[Example]], dict[str, Any]]:
    """Retrieved examples of each task, and facts about them; None for facts that need an index that cannot be read.

    A kernel that breaks a stated rule counts as shown. An error of the retriever is appended to `missing`.
    """
    none: Sequence[Sequence[Example]] = [()] * len(tasks)
    use = recipe.retriever
    if use is None:
        return none, {}
    facts: dict[str, Any] = dict.fromkeys(("examples_per_prompt", "example_tokens_per_prompt", "leak_rate"))
    if not tasks or registry.missing(registry.find("retrievers", use.use), use.options):
        return none, facts
    try:
        retrieval = make_retrieval(
            recipe, registry, registry.make("tasks", recipe.tasks), lambda kernel, reference: False
        )
        assert retrieval is not None
        found = [retrieval.search(task).examples for task in tasks]
        facts["leak_rate"] = retrieval.leak_rate(tasks)
    except KernelRLError as error:
        missing.append(str(error).replace("\n", "; "))
        return none, facts
    characters = sum(len(example.reference) + len(example.kernel) for examples in found for example in examples)
    facts["examples_per_prompt"] = sum(map(len, found)) / len(tasks)
    facts["example_tokens_per_prompt"] = round(characters / len(tasks) / CHARACTERS_PER_TOKEN)
    return found, facts


def _prompt_tokens(
    recipe: Recipe, registry: Registry, tasks: Sequence[Task], examples: Sequence[Sequence[Example]]
) -> float | None:
    """Estimated mean prompt tokens of a first turn; None if no task or backend can be read."""
    if not tasks:
        return None
    try:
        backend = registry.make("backends", recipe.backend)
        composer = Composer(recipe.prompt, recipe.history, backend.facts, (), recipe.evaluation)
        prompts = [composer.messages(task, examples=shown) for task, shown in zip(tasks, examples, strict=True)]
    except KernelRLError:
        return None
    size = sum(len(message.content) for prompt in prompts for message in prompt)
    return size / len(prompts) / CHARACTERS_PER_TOKEN


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{key} {item:g}" if isinstance(item, float) else f"{key}: {item}" for key, item in value.items()
        )
    if isinstance(value, float):
        return f"{value:,.2f}"
    return "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
