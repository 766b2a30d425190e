"""Dry-run plan of a recipe: size, cost and missing prerequisites, without API key, GPU or network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelrl_core.algorithms.learning_rates import warmup_steps
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
from kernelrl_core.recipe.schema import EvalSettings, PriceSettings, Recipe
from kernelrl_core.rollout.episode import logprobs_temperature
from kernelrl_core.rollout.session import require_trainable
from kernelrl_core.tasks.curriculum import TaskSchedule
from kernelrl_core.tasks.selection import eval_tasks, listed, training_tasks
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
        UsageError: a policy that cannot learn, an empty split, or contradictions in the batches.
    """
    require_trainable(recipe)
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
    tasks, excluded, n_in_split = _training_tasks(recipe, registry, missing)
    steps = TaskSchedule(tasks, recipe).n_steps if tasks is not None else recipe.train.steps
    per_step = recipe.train.tasks_per_step * recipe.train.group_size * recipe.episode.turns
    sampled = (tasks or [])[:SAMPLED_TASKS]
    examples, retrieved = _examples(recipe, registry, sampled, missing)
    known = _prompt_tokens(recipe, registry, sampled, examples)
    prompt = ASSUMED_PROMPT_TOKENS if known is None else known
    updates = _held_out_updates(recipe.eval, steps)
    held_out = _held_out_tasks(recipe, registry)
    n_evaluations = None if updates is None else sum(map(len, updates))
    held_out_episodes = None
    if n_evaluations == 0:
        held_out_episodes = 0
    elif held_out is not None and n_evaluations is not None:
        held_out_episodes = held_out * n_evaluations * recipe.eval.samples
    facts: dict[str, Any] = {
        "recipe": name,
        "policy": recipe.policy.use,
        "model": getattr(recipe.policy.options, "model", None),
        "backend": recipe.backend.use,
        "evaluator": recipe.evaluator.use,
        "rewards": {name: use.weight for name, use in recipe.rewards.items()},
        "splits": {"train": recipe.train.split, "held_out": recipe.eval.split},
        "tasks": len(tasks) if tasks is not None else None,
        "tasks_excluded": n_in_split - len(tasks) if tasks is not None else None,
        "steps": steps,
        "tasks_per_step": recipe.train.tasks_per_step,
        "group_size": recipe.train.group_size,
        "turns": recipe.episode.turns,
        "samples_per_step": per_step,
        "samples": per_step * steps if steps is not None else None,
        "held_out_tasks": held_out,
        "held_out_evaluations": n_evaluations,
        "held_out_samples": held_out_episodes and held_out_episodes * recipe.episode.turns,
        "algorithm": _algorithm(recipe, steps),
        **retrieved,
    }
    facts |= _cost(recipe, registry, prompt, steps, held_out or 0, updates or [])
    lines = excluded.splitlines() if excluded is not None else []
    return facts | {"excluded": lines, "pending": pending_preparations(spec_of(recipe)), "missing": missing}


def _training_tasks(
    recipe: Recipe, registry: Registry, missing: list[str]
) -> tuple[list[Task] | None, str | None, int]:
    """The tasks of training, a line about the excluded ones, and the number of tasks in the split.

    Args:
        missing: the lines of the plan about missing prerequisites. That of the task source is added; the tasks are then
            None.
    """
    try:
        source = registry.make("tasks", recipe.tasks)
        selected, excluded = training_tasks(source, recipe.train, recipe.eval.split)
        return list(selected), excluded, len(listed(source, recipe.train.split))
    except KernelRLError as error:
        prefix = f"{recipe.tasks.use}:"
        text = str(error) if error.message.startswith(prefix) else f"{prefix} {error}"
        line = text.replace("\n", "; ")
        if line not in missing:
            missing.append(line)
        return None, None, 0


def _cost(
    recipe: Recipe, registry: Registry, prompt: float, steps: int | None, held_out: int, updates: list[range]
) -> dict[str, Any]:
    """Upper estimates of the amounts of one step and of the run.

    Args:
        prompt: tokens of a prompt.
        steps: of the run; None: unknown.
        held_out: number of held-out tasks.
        updates: see `_held_out_updates`.
    """
    on_gpu, prices = evaluates_on_gpu(recipe, registry), prices_of(recipe)
    episodes = recipe.train.tasks_per_step * recipe.train.group_size
    last = max(0, (steps or 1) - 1)  # replies may be longer in later steps, and are never shorter
    one = spent_at_most(recipe, prompt, episodes=episodes, steps=[range(last, last + 1)], on_gpu=on_gpu, trains=True)
    whole = None
    if steps is not None:
        whole = spent_at_most(recipe, prompt, episodes=episodes, steps=[range(steps)], on_gpu=on_gpu, trains=True)
        of_one = held_out * recipe.eval.samples
        whole += spent_at_most(recipe, prompt, episodes=of_one, steps=updates, on_gpu=on_gpu, trains=False)
    of_run = _amounts("", whole, prices)
    return {**_amounts("_per_step", one, prices), **of_run, "budget_usd": recipe.cost.budget_usd}


def _algorithm(recipe: Recipe, steps: int | None) -> dict[str, Any]:
    """The settings that decide how the policy learns.

    Args:
        steps: of the run; None: unknown.
    """
    train, sampling = recipe.train, recipe.sampling
    several_turns = recipe.episode.turns > 1
    return {
        "loss": train.loss,
        "clip": None if train.loss == "importance_sampling" else [1 - train.clip_low, 1 + train.clip_high],
        "ratio": train.ratio,
        "length_norm": train.length_norm,
        "kl": train.kl,
        "advantage": {"use": recipe.advantage.use, **recipe.advantage.raw},
        "gamma": recipe.returns.gamma if several_turns else None,
        "aggregate": recipe.returns.aggregate if several_turns else None,
        "learning_rate": train.learning_rate,
        "learning_rate_schedule": train.learning_rate_schedule,
        "warmup_steps": None if steps is None else warmup_steps(train, steps),
        "substeps": train.substeps,
        "max_grad_norm": train.max_grad_norm,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "reply_tokens": sampling.max_tokens,
        "logprobs_temperature": logprobs_temperature(recipe),
    }


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
    hidden = {"missing", "pending", "excluded", "differs", "seconds", "seconds_from", "prompt", "algorithm"} | (
        {"budget_usd"} if facts["budget_usd"] is None else set()
    )
    hidden |= {"model"} if facts["model"] is None else set()
    hidden |= {key for key in facts if key.startswith("scored_tokens") and not facts["scored_tokens_per_step_at_most"]}
    unpriced = facts["usd_per_step_at_most"] is None
    rows = [
        (key.replace("_", " "), "no prices set" if unpriced and key.startswith("usd_") else _shown(value))
        for key, value in facts.items()
        if key not in hidden
    ]
    sizes = [label for label, _ in rows].index("held out samples") + 1
    return [*rows[:sizes], *_algorithm_rows(facts["algorithm"]), *rows[sizes:]]


def _algorithm_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    clip = "not clipped" if facts["clip"] is None else "clipped to {:g} .. {:g}".format(*facts["clip"])
    loss = f"{facts['loss']}, ratio of each {facts['ratio']} {clip}, length_norm {facts['length_norm']}"
    loss += f", KL penalty {facts['kl']:g}" if facts["kl"] else ""
    options = {key: value for key, value in facts["advantage"].items() if key != "use" and value is not None}
    advantage = facts["advantage"]["use"] + (f" ({_shown(options)})" if options else "")
    if facts["gamma"] is not None:
        advantage += f" of returns: {facts['aggregate']}, gamma {facts['gamma']:g}"
    n_warmup = facts["warmup_steps"]
    warmup = f"{'an unknown number of' if n_warmup is None else n_warmup} warm-up steps"
    if n_warmup == 1:
        warmup = "1 warm-up step, which already has the full rate"
    rate = f"{facts['learning_rate']:g}, {facts['learning_rate_schedule']}, {warmup}"
    norm = "" if facts["max_grad_norm"] is None else f", gradient norm at most {facts['max_grad_norm']:g}"
    top_k = "" if facts["top_k"] < 0 else f", top_k {facts['top_k']}"
    sampling = f"temperature {facts['temperature']:g}, top_p {facts['top_p']:g}{top_k}"
    if facts["logprobs_temperature"] != facts["temperature"]:
        sampling += f", log-probabilities at temperature {facts['logprobs_temperature']:g}"
    return [
        ("loss", loss),
        ("advantage", advantage),
        ("learning rate", rate),
        ("optimizer steps per step", f"{facts['substeps']}{norm}"),
        ("sampling", f"{sampling}, at most {facts['reply_tokens']:,} tokens"),
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
    lines += [*facts.get("differs", ()), *facts["excluded"]]
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


def _held_out_updates(settings: EvalSettings, steps: int | None) -> list[range] | None:
    """The numbers of updates before each held-out evaluation of the run; None if they depend on an unknown number of
    steps."""
    if steps is None and (settings.every or settings.at_end):
        return None
    n_steps = steps or 0
    updates = [range(1)] if settings.at_start else []
    if settings.every:
        updates.append(range(settings.every, n_steps + 1, settings.every))
    if n_steps and settings.at_end and not (settings.every and n_steps % settings.every == 0):
        updates.append(range(n_steps, n_steps + 1))
    return updates


def _held_out_tasks(recipe: Recipe, registry: Registry) -> int | None:
    """Number of tasks of a held-out evaluation; 0 if the run makes none, None if they cannot be read."""
    if not (recipe.eval.every or recipe.eval.at_start or recipe.eval.at_end):
        return 0
    try:
        return len(eval_tasks(registry.make("tasks", recipe.tasks), recipe.eval))
    except KernelRLError:
        return None


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
    if isinstance(value, int):
        return f"{value:,}"
    return "unknown" if value is None else str(value)
