"""Checks for contradictions between the keys of a recipe, before a run starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from types import SimpleNamespace
from typing import Any, TypeVar

import attrs

from kernelrl_core.errors import InfrastructureError, KernelRLError, MissingPrerequisite, UsageError, suggestion
from kernelrl_core.interfaces.rewards import RewardBounds
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.plugins.boundary import plugin_boundary, returned
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.prompts.composer import MINIMUM_REPLY_TOKENS, Composer
from kernelrl_core.recipe.blocks import uses
from kernelrl_core.recipe.component_checks import (
    Contradiction,
    contradicting_precision,
    made,
    own_problems,
    unknown_rules,
)
from kernelrl_core.recipe.schema import EvalSettings, RewardUse, SpeedupStop
from kernelrl_core.types import Task

__all__ = ["contradictions"]

PROMPT_TEMPLATES = ("kernelrl", "kernelbench", "kevin", "brief")
"""Templates of the core; any other value of `prompt.template` is a path."""

_MOST_CHARACTERS_PER_TOKEN, _FEWEST_CHARACTERS_PER_TOKEN = 40, 3
"""Range over all tokenizers. One that is trained on the prompts themselves has up to 30 characters per token."""

T = TypeVar("T")
Parts = Any
Rule = Callable[[Parts, Registry], Iterator[Contradiction]]


def contradictions(parts: Mapping[str, Any], registry: Registry) -> Iterator[Contradiction]:
    """All contradictions between the recipe keys in `parts`, which are those without mistakes of their own."""
    given = SimpleNamespace(**parts)
    for needs, rule in _RULES:
        if all(key in parts for key in needs):
            yield from rule(given, registry)
    for path, use in uses(parts):
        yield from own_problems(path, use)


def _timing(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    if given.evaluation.timing:
        return
    hint = "set evaluation.timing: true, or remove it"
    for name, use in given.rewards.items():
        if use.weight and use.options.needs_timing():
            yield Contradiction(
                ("rewards", name), f"{use.use!r} requires run times, but evaluation.timing is false", hint
            )
    if isinstance(given.episode.stop, SpeedupStop):
        message = "no speedup is measured, because evaluation.timing is false"
        yield Contradiction(("episode", "stop"), message, hint)


def _hack_reward(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    try:
        bounds = [(use.weight, use.options.bounds()) for use in given.rewards.values()]
        # Lowest score of a wrong kernel without findings, from the components that distinguish wrong from correct.
        failure = sum(weight * bound.low for weight, bound in bounds if weight > 0 and bound.gap > 0)
    except Exception:  # reported by `_gaps`
        return
    if given.verdicts.hack_reward > failure:
        message = f"a hack would score {given.verdicts.hack_reward:g}, more than a wrong honest kernel ({failure:g})"
        yield Contradiction(("verdicts", "hack_reward"), message, f"set it to {failure:g} or below")
    if given.verdicts.suspect == "zero" and failure < 0:
        message = f"a wrong kernel with verdict suspect would score 0, more than without findings ({failure:g})"
        yield Contradiction(("verdicts", "suspect"), message, "set it to cap, which counts its speedup as at most 1")


def _needed_settings(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    for name, use in given.rewards.items():
        for key, wanted in (use.options.needs_settings() if use.weight else {}).items():
            if getattr(given.evaluation, key) != wanted:
                written = str(wanted).lower()
                message = f"{use.use!r} has no effect unless evaluation.{key} is {written}"
                yield Contradiction(("rewards", name), message, f"set evaluation.{key}: {written}, or remove it")


def _precision(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    return contradicting_precision(given.evaluation)


def _gaps(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    if not given.rewards:
        yield Contradiction(
            ("rewards",), "no reward is configured", "add at least one, such as correct: {use: correctness}"
        )
        return
    gaps = {}
    for name, use in given.rewards.items():
        try:
            gaps[name] = _weighted_gap(use)
        except Exception as error:  # plugin code
            plugin = registry.plugin_of("rewards", use.use).name
            cause = f"{type(error).__name__}: {error}"
            message = f"plugin {plugin}: {use.use!r} does not declare bounds: {cause}"
            fix = f"in the plugin, return a RewardBounds from bounds(); kernelrl plugins check {plugin} tests it"
            yield Contradiction(("rewards", name), message, fix)
    if len(gaps) == len(given.rewards) and not sum(gaps.values()) > 1e-12:
        listed = ", ".join(f"{name} {gap:+g}" for name, gap in gaps.items())
        yield Contradiction(
            ("rewards",),
            f"a wrong kernel could score as much as a correct one: least score differences for correctness: {listed}",
            "raise the weight of a reward for correctness, or lower the weights of rewards that ignore correctness",
        )


def _reward_code(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    for name, use in given.rewards.items():
        try:
            use.options.bounds()
        except Exception:  # reported by `_gaps`
            continue
        _, mistake = made("rewards", ("rewards", name), use, registry)
        if mistake is not None:
            yield mistake


def _feedback_code(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    _, mistake = made("feedback", ("feedback",), given.feedback, registry)
    if mistake is not None:
        yield mistake


def _weighted_gap(use: RewardUse) -> float:
    bounds: RewardBounds = use.options.bounds()
    if use.weight == 0:
        return 0.0
    # With a negative weight the worst case is the whole range of the component.
    gap = use.weight * (bounds.gap if use.weight > 0 else bounds.high - bounds.low)
    if math.isnan(gap):
        raise ValueError("a bound is not a number")
    return float(gap)


def _coverage(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    if given.train.coverage_rejection is not None and not given.evaluation.timing:
        message = "the kernels of a call are not timed, so no training sample would be filtered"
        yield Contradiction(
            ("train", "coverage_rejection"), message, "set evaluation.timing to true, or set it to null"
        )


def _curriculum(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    if given.curriculum is None:
        return
    stages = given.curriculum.stages
    if not stages and given.curriculum.difficulty is None:
        yield Contradiction(("curriculum",), "neither stages nor difficulty is set", "set one, or set it to null")
    for index, stage in enumerate(stages):
        path = ("curriculum", "stages", str(index))
        last, ends = index + 1 == len(stages), stage.until is not None or stage.max_steps is not None
        if not last and not ends:
            yield Contradiction(path, "the stage never ends, so the next one never starts", "set until or max_steps")
        if last and ends:
            yield Contradiction(path, "the last stage lasts until the end of the run", "remove until and max_steps")
        for name in stage.weights:
            if name not in given.rewards:
                message = f"no reward {name!r}"
                yield Contradiction((*path, "weights", name), message, suggestion(name, given.rewards))
        rewards = {
            name: attrs.evolve(use, weight=stage.weights.get(name, use.weight)) for name, use in given.rewards.items()
        }
        if stage.weights and not any(name not in given.rewards for name in stage.weights):
            for found in _gaps(SimpleNamespace(rewards=rewards), registry):
                yield attrs.evolve(found, path=(*path, "weights"))


def _length(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    if given.train.steps is not None and given.train.epochs is not None:
        yield Contradiction(("train", "epochs"), "train.steps is set, too", "set one of them to null")


def _groups(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    size = given.train.group_size
    if given.train.min_group_size > size:
        message = f"{given.train.min_group_size} is more than train.group_size, {size}: every group would be masked"
        yield Contradiction(("train", "min_group_size"), message)


def _estimator(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    # Every estimator of the core compares episodes; one of a plugin may not.
    if given.train.group_size < 2 and registry.plugin_of("advantages", given.advantage.use).name == "core":
        message = f"advantage {given.advantage.use!r} compares the episodes of a group, but the group has only one"
        yield Contradiction(("train", "group_size"), message, "set it to 2 or more")


def _loss(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    capabilities = given.policy.options.capabilities()
    if not capabilities.losses:
        return  # a policy that cannot be trained can be evaluated; `run` refuses it
    if given.train.loss not in capabilities.losses:
        message = f"policy {given.policy.use!r} has no loss {given.train.loss!r}"
        yield Contradiction(("train", "loss"), message, suggestion(given.train.loss, capabilities.losses))
    if given.train.kl and not capabilities.reference:
        message = (
            f"policy {given.policy.use!r} gives no log-probabilities of its reference policy, which a penalty needs"
        )
        yield Contradiction(("train", "kl"), message, "set it to 0, or choose another policy")
    if given.train.mismatch is not None and not capabilities.logprobs:
        message = f"policy {given.policy.use!r} gives no log-probabilities of its current weights to compare with"
        yield Contradiction(("train", "mismatch"), message, "set it to null, or choose another policy")
    mismatch = given.train.mismatch
    if mismatch is not None and mismatch.sequence_low > mismatch.sequence_high:
        message = f"no ratio is between {mismatch.sequence_low:g} and {mismatch.sequence_high:g}: all would be filtered"
        yield Contradiction(("train", "mismatch", "sequence_low"), message, "set it below sequence_high")
    offered = sorted(capabilities.ratios)
    if given.train.ratio_level not in offered:
        message = f"policy {given.policy.use!r} with these options supports only ratio {' or '.join(offered)}"
        yield Contradiction(("train", "ratio"), message, "remove it, or choose another policy")


def _tasks(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    """Splits without tasks, and levels that no task has."""
    from kernelrl_core.tasks.selection import eval_tasks, training_tasks

    if given.tasks.options.remote():
        return
    found: list[Contradiction] = []

    def attempt(call: Callable[[], T], place: tuple[str, ...]) -> T | None:
        try:
            return call()
        except (InfrastructureError, MissingPrerequisite):
            return None  # reported when the tasks are read; they may be on another machine
        except KernelRLError as error:
            found.append(Contradiction(place, error.message, error.fix))
            return None

    def opened() -> tuple[TaskSource, Sequence[str]]:
        source = registry.make("tasks", given.tasks)
        label = f"task source {given.tasks.use!r}"
        with plugin_boundary(label, "splits"):
            return source, returned(source.splits(), Sequence, label, "splits")  # type: ignore[type-abstract]

    source, splits = attempt(opened, ("tasks",)) or (None, ())
    if source is not None:
        held_out, training = given.eval.split, given.train.split
        if given.eval.every or given.eval.at_start or given.eval.at_end or held_out != EvalSettings().split:
            attempt(lambda: eval_tasks(source, given.eval), ("tasks",) if held_out in splits else ("eval", "split"))
        place = ("tasks",) if training in splits else ("train", "split")
        selected = attempt(lambda: training_tasks(source, given.train, held_out), place)
        if selected is not None and not selected[0]:
            found.append(Contradiction(("train", "split"), f"split {training!r} has no tasks"))
        elif selected is not None:
            found += _levels(given, selected[0])
    # An error in listing one split may be an error in listing the other.
    yield from dict.fromkeys(found)


def _levels(given: Parts, tasks: Sequence[Task]) -> Iterator[Contradiction]:
    stages = given.curriculum.stages if given.curriculum is not None else ()
    levels = {task.level for task in tasks if task.level is not None}
    known = ", ".join(map(str, sorted(levels))) or "none"
    for index, stage in enumerate(stages):
        if stage.levels is not None and not levels.intersection(stage.levels):
            message = f"no task of split {given.train.split!r} has one of these levels"
            yield Contradiction(("curriculum", "stages", str(index), "levels"), message, f"known levels: {known}")


def _warm_start(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    """A warm start without demonstrations, because the task source has none for the backend."""
    own = given.demonstrations
    if not given.policy.options.capabilities().warm_start or own.file is not None or given.tasks.options.remote():
        return
    backend = given.backend.use.rpartition(":")[2]
    try:
        source = registry.make("tasks", given.tasks)
        tasks = [task for split in source.splits() for task in source.tasks(split)] if own.bundled else []
        if any(one.backend == backend for task in tasks for one in source.demonstrations(task)):
            return
    except Exception:  # plugin code; reported by `_tasks`
        return
    message = f"the tasks have no demonstration for backend {backend!r}, which the warm start of the policy needs"
    hint = "set policy.warm_start=null if the policy has this option, or demonstrations.file"
    yield Contradiction(("backend",), message, hint)


def _context(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    """Limits that are certainly too small for the longest prompt, which is measured in characters."""
    options = given.policy.options
    limit, most = options.context_limit(), given.prompt.max_tokens
    if limit is None and most is None:
        return
    characters = _prompt_characters(given, registry)
    prompt = max(1, characters // _MOST_CHARACTERS_PER_TOKEN)
    enough = max(1, characters // _FEWEST_CHARACTERS_PER_TOKEN)
    if most is not None and most < prompt:
        message = f"the longest first prompt has {prompt} tokens or more"
        yield Contradiction(("prompt", "max_tokens"), message, f"set it to {enough} or more")
    reply = min(MINIMUM_REPLY_TOKENS, given.sampling.max_tokens)
    if limit is not None and limit < prompt + reply:
        key = _context_key(options, limit)
        message = (
            f"a context of {limit} tokens cannot hold a prompt (the longest has {prompt} tokens or more) and a reply "
            f"of {reply} tokens"
        )
        fitting = 2 ** math.ceil(math.log2(enough + given.sampling.max_tokens))
        yield Contradiction(("policy", *key), message, f"set it to {fitting}" if key else "")


def _prompt_characters(given: Parts, registry: Registry) -> int:
    """Characters of the first prompt of the longest training task; 0 if the tasks cannot be read here."""
    from kernelrl_core.tasks.selection import training_tasks

    if given.tasks.options.remote():
        return 0
    try:
        tasks, _ = training_tasks(registry.make("tasks", given.tasks), given.train, given.eval.split)
        facts = registry.make("backends", given.backend).facts
        composer = Composer(given.prompt, given.history, facts, (), given.evaluation)
        longest = max(tasks, key=lambda task: len(task.reference))
        return sum(len(message.content) for message in composer.messages(longest))
    except Exception:  # plugin code, or a missing prerequisite; reported by other checks
        return 0


def _context_key(options: Any, limit: int) -> tuple[str, ...]:
    """Path of the option that sets the context of a policy: the one with the value `limit`, else that of the policy
    itself."""
    fields = attrs.asdict(options, recurse=False)
    nested = {name: value for name, value in fields.items() if attrs.has(type(value))}
    inside = [name for name, value in nested.items() if getattr(value, "context_tokens", 0) == limit]
    if "context_tokens" in fields and (fields["context_tokens"] == limit or not inside):
        return ("context_tokens",)
    return (inside[0], "context_tokens") if inside else ()


def _optimizer(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    for key in ("beta1", "beta2"):
        if getattr(given.train, key) >= 1:
            yield Contradiction(("train", key), "must be below 1, else the optimizer makes no progress")
    if given.train.loss == "ppo" and given.train.clip_low >= 1:
        yield Contradiction(("train", "clip_low"), "must be below 1, else the ratio is never clipped from below")


def _pipeline(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    train, capabilities = given.train, given.policy.options.capabilities()
    if train.exact_resume and capabilities.losses and not capabilities.deterministic:
        message = f"replies of policy {given.policy.use!r} with these options cannot be repeated exactly"
        yield Contradiction(("train", "exact_resume"), message, "remove it, or set it to false")
    exact = capabilities.deterministic if train.exact_resume is None else train.exact_resume
    loose = (("order", train.order != "canonical"), ("staleness", train.staleness > 0))
    for key, set_so in loose:
        if set_so and exact:
            message = (
                f"with {getattr(train, key)}, timing affects the updates, so a resumed run differs from an "
                "uninterrupted one"
            )
            yield Contradiction(("train", key), message, "set train.exact_resume: false to accept that, or remove it")
    if train.staleness and given.curriculum is not None:
        message = "a curriculum selects the tasks of a step from results of the step before"
        yield Contradiction(("train", "staleness"), message, "set it to 0, or remove curriculum")
    if train.staleness and train.mismatch is not None:
        message = "train.mismatch compares with the current weights, but stale samples come from earlier weights"
        yield Contradiction(("train", "staleness"), message, "set it to 0, or set train.mismatch to null")
    if train.staleness >= 3 and train.loss == "importance_sampling":
        message = f"the ratios of importance_sampling are not clipped, and diverge with {train.staleness} stale updates"
        yield Contradiction(("train", "staleness"), message, "set it to 2 or below, or train.loss to ppo or cispo")


def _budget(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    from kernelrl_core.monitoring.costs import prices_of

    try:
        prices = prices_of(given)
    except KernelRLError as error:
        yield Contradiction(("cost", "table"), error.message, error.fix)
        return
    if given.cost.budget_usd is None:
        return
    unknown = [f"cost.prices.{key}" for key in ("prompt", "reply", "train") if getattr(prices, key) is None]
    if unknown:
        message = f"policy {given.policy.use!r} declares no prices, so the budget cannot be enforced"
        yield Contradiction(("cost", "budget_usd"), message, f"set {', '.join(unknown)}, in USD per million tokens")


def _sampling(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    sampling = given.sampling
    if sampling.extend is not None and sampling.extend.max_tokens <= sampling.max_tokens:
        message = f"{sampling.extend.max_tokens} is not above sampling.max_tokens ({sampling.max_tokens})"
        yield Contradiction(("sampling", "extend", "max_tokens"), message)
    if "" in sampling.stop:
        yield Contradiction(("sampling", "stop"), "an empty string ends every reply before its first token")
    if sampling.top_p == 0:
        hint = "set it to 1 for all tokens, or sampling.temperature to 0 for the most probable one"
        yield Contradiction(("sampling", "top_p"), "0 excludes every token", hint)
    if sampling.top_k == 0 or sampling.top_k < -1:
        yield Contradiction(("sampling", "top_k"), f"cannot sample from {sampling.top_k} tokens", "-1 means all")


def _prompt(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    from kernelrl_core.prompts.hardware import hardware_block
    from kernelrl_core.prompts.templates import BUILTIN, Template

    if given.prompt.hardware is not None and given.prompt.hardware.gpu != "auto":  # auto: the GPU of another machine
        try:
            hardware_block(given.prompt.hardware.gpu)
        except UsageError as error:
            message = error.message.removeprefix("prompt.hardware.gpu: ")
            yield Contradiction(("prompt", "hardware", "gpu"), message, error.fix)
    if given.prompt.template in BUILTIN:
        return
    try:
        Template(given.prompt.template)
    except KernelRLError as error:
        yield Contradiction(("prompt", "template"), error.message.removeprefix("prompt.template: "), error.fix)


def _forbid(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    return unknown_rules(given.checkers, given.forbid, registry)


def _demonstrations(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    from kernelrl_core.prompts.sft_file import read_conversations

    file = given.demonstrations.file
    hint = "create it with 'kernelrl distill RUN -o FILE', or set demonstrations.file to null"
    if file is not None and not file.is_file():
        yield Contradiction(("demonstrations", "file"), f"no such file: {file}", hint)
        return
    try:
        if file is not None:
            read_conversations(file)
    except KernelRLError as error:
        message = error.message.removeprefix("demonstrations.file: ")
        yield Contradiction(("demonstrations", "file"), message, error.fix or hint)


def _requires(given: Parts, registry: Registry) -> Iterator[Contradiction]:
    from packaging.requirements import InvalidRequirement, Requirement

    for text in given.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            yield Contradiction(("requires",), f"{text!r} is not a requirement", "expected: such as 'kernelrl>=0.1'")
            continue
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield Contradiction(("requires",), f"{text} is not installed", f"pip install '{text}'", missing=True)
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            message = f"{text} is required, {installed} is installed"
            yield Contradiction(("requires",), message, f"pip install '{text}'", missing=True)


_RULES: tuple[tuple[tuple[str, ...], Rule], ...] = (
    (("rewards", "evaluation", "episode"), _timing),
    (("rewards", "evaluation"), _needed_settings),
    (("rewards", "verdicts"), _hack_reward),
    (("evaluation",), _precision),
    (("rewards",), _gaps),
    (("rewards",), _reward_code),
    (("feedback",), _feedback_code),
    (("rewards", "curriculum"), _curriculum),
    (("train", "evaluation"), _coverage),
    (("curriculum", "tasks", "train", "eval"), _tasks),
    (("tasks", "backend", "policy", "demonstrations"), _warm_start),
    (("policy", "sampling", "prompt", "history", "tasks", "train", "eval", "backend", "evaluation"), _context),
    (("train",), _length),
    (("train",), _groups),
    (("train", "advantage"), _estimator),
    (("policy", "train"), _loss),
    (("train",), _optimizer),
    (("train", "curriculum", "policy"), _pipeline),
    (("cost", "policy", "evaluator"), _budget),
    (("sampling",), _sampling),
    (("prompt",), _prompt),
    (("checkers", "forbid"), _forbid),
    (("demonstrations",), _demonstrations),
    (("requires",), _requires),
)
"""Recipe keys that a check reads, and the check. It is skipped if one of the keys has mistakes of its own."""
