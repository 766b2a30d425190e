"""Task, kernels and settings of a check, and what it needs of a recipe."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import attrs

from kernelrl_core.environment.scoring import WeightedReward, weighted_rewards
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.evaluation_spec import DEFAULT_EVALUATION, EVALUATION_KEYS, EvaluationSpec, spec_from_parts
from kernelrl_core.recipe.merge import Merged, merge_layers, override_layers
from kernelrl_core.recipe.parts import read_parts
from kernelrl_core.recipe.problems import COMMAND_LINE
from kernelrl_core.recipe.schema import VerdictSettings
from kernelrl_core.tasks.lookup import needs_source

__all__ = [
    "CheckOptions",
    "CheckParts",
    "check_parts",
    "component_keys",
    "default_keys",
    "is_on_command_line",
    "split_arguments",
]

_KEY_VALUE = re.compile(r"[A-Za-z_]\w*(\.\w+)*=")


@attrs.frozen
class CheckOptions:
    """Task, kernels and settings of a check."""

    task: str
    """Task id, or a file with a task; empty with a suite."""
    names: tuple[str, ...]
    """Files and folders with kernels; `-` is standard input."""
    merged: Merged
    """Recipe keys; those of the evaluation count."""
    chosen: tuple[str, str] | None = None
    """Evaluator and backend, if no other key of the recipe has a say; the evaluator then starts while the specification
    is read."""
    timing: bool = True
    """False: no kernel is timed."""
    seed: int | None = None
    """Seed of the inputs; None: random."""
    cache: bool = False
    """Use the evaluation cache. Without a seed, the seed is 0."""
    confine: bool = False
    """Evaluate the task as one of others: its judge is confined."""
    watch: bool = False
    """Evaluate a kernel again when its file changes, without end."""
    suite: str = ""
    """Folder or file with many kernels and their tasks, in place of `task` and `names`; see `suite`."""
    function: str = ""
    """Function that is the kernel; see `KernelReader`."""
    path: str = ""
    """Directory of the user's package; see `KernelReader`."""


def split_arguments(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Kernel files, and the overrides `KEY=VALUE` among the arguments. An existing file is never an override."""
    overrides = tuple(word for word in words if _KEY_VALUE.match(word) and not os.path.exists(word))
    return [word for word in words if word not in overrides], overrides


def default_keys(
    backend: str | None, evaluator: str | None, overrides: Sequence[str], registry: Registry
) -> tuple[Merged, tuple[str, str] | None]:
    """Recipe keys of a check without a recipe, and its evaluator and backend, unless an override may change them.

    Raises:
        RecipeError: lists the overrides that cannot be read.
        PluginFailed: an evaluator could not find out whether it serves.
    """
    if evaluator is None and not any(key.startswith("evaluator") for key in overrides):
        evaluator = registry.evaluator_of_check()
    chosen = (
        evaluator or DEFAULT_EVALUATION["evaluator"]["use"],
        backend or DEFAULT_EVALUATION["backend"]["use"],
    )
    merged = merge_layers(
        [Merged(dict(DEFAULT_EVALUATION)), *override_layers([*component_keys(backend, evaluator), *overrides])]
    )
    is_open = any(key.startswith(("evaluator", "backend")) for key in overrides)
    return merged, None if is_open else chosen


def component_keys(backend: str | None, evaluator: str | None) -> list[str]:
    """The overrides that select a backend and an evaluator."""
    keys = [f"backend.use={backend}"] if backend else []
    return keys + ([f"evaluator.use={evaluator}"] if evaluator else [])


@attrs.frozen
class CheckParts:
    """What a check needs of a recipe."""

    spec: EvaluationSpec
    tasks: Use | None
    """The task source, if the task needs it."""
    rewards: tuple[WeightedReward, ...]
    """Empty: no recipe is given."""
    verdicts: VerdictSettings
    stated_timing: bool | None
    """`evaluation.timing` of the command line; None: not set there."""
    keys: tuple[str, ...]
    """Recipe keys that were read."""


def check_parts(options: CheckOptions, registry: Registry) -> CheckParts:
    """Read the recipe keys of a check.

    Raises:
        RecipeError: lists all mistakes in them.
    """
    merged = options.merged
    own = merged.data.get("tasks")
    name = str(own.get("use", "")) if isinstance(own, Mapping) else ""
    with_tasks = own is not None and (bool(options.suite) or needs_source(options.task, name, registry))
    keys = [*EVALUATION_KEYS]
    if with_tasks:
        keys.append("tasks")
    if merged.data.get("rewards") is not None:
        keys += ["rewards", "verdicts"]
    parts = read_parts(merged, keys, registry)
    spec = spec_from_parts(parts)
    is_stated = is_on_command_line(merged, "evaluation", "timing")
    return CheckParts(
        spec,
        tasks=parts.get("tasks"),
        rewards=tuple(weighted_rewards(parts.get("rewards", {}), registry)),
        verdicts=parts.get("verdicts", VerdictSettings()),
        stated_timing=spec.settings.timing if is_stated else None,
        keys=tuple(keys),
    )


def is_on_command_line(merged: Merged, *key: str) -> bool:
    """Whether an override of the command line set a key."""
    origin = merged.origins.get(key)
    return origin is not None and origin.source == COMMAND_LINE
