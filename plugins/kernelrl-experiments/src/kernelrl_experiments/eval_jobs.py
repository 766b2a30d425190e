"""What a held-out evaluation measures: a recipe's untrained policy, checkpoints of a run, or existing kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.errors import LookupFailed, UsageError
from kernelrl_core.planning.load import (
    LoadedRecipe,
    checked_recipe,
    find_recipe,
    merge_recipe,
    nearest_name_or_path,
    recipes,
)
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.merge import Merged, merge_layers
from kernelrl_core.recipe.schema import PositiveInt, Recipe
from kernelrl_core.runs.checkpoints import choose_checkpoint
from kernelrl_core.runs.directory import RunDir, find_run, list_runs
from kernelrl_core.runs.provenance import retriever_identity
from kernelrl_core.training.continuation import run_recipe
from kernelrl_experiments.existing_kernels import ExistingKernels, read_existing

__all__ = ["EvalJob", "choose_job", "choose_jobs", "with_kernels"]

Show = Callable[[LoadedRecipe], None]
"""Shows the files and warnings of a recipe before it is used."""


@attrs.frozen
class EvalJob:
    """Policy and recipe of a held-out evaluation."""

    recipe: Recipe
    registry: Registry
    label: str
    """Name of the policy in the report."""
    run: RunDir | None = None
    """Run of the checkpoint; its secret then gives the input seeds."""
    resolved: Mapping[str, Any] = attrs.field(factory=dict)
    """The recipe as plain data."""
    checkpoint: Mapping[str, Any] | None = None
    """Checkpoint row of `run`; None: the untrained policy."""
    existing: ExistingKernels | None = None
    """Kernels that are evaluated in place of a policy."""

    @property
    def steps(self) -> int:
        """Steps that the policy was trained for."""
        return 0 if self.checkpoint is None else int(self.checkpoint["loop"]["next_step"])


def choose_job(
    name: str, overrides: Sequence[str] = (), checkpoint: str | None = None, *, registry: Registry, show: Show
) -> EvalJob:
    """The held-out evaluation of a recipe or of one checkpoint of a run; see `choose_jobs`."""
    checkpoints = () if checkpoint is None else (checkpoint,)
    return choose_jobs(name, overrides, checkpoints, registry=registry, show=show)[0]


def choose_jobs(
    name: str,
    overrides: Sequence[str] = (),
    checkpoints: Sequence[str] = (),
    *,
    registry: Registry,
    show: Show,
    needs_policy: bool = True,
) -> list[EvalJob]:
    """The held-out evaluations of a recipe or a run. A bare name is a recipe, unless only a run has that name.

    Args:
        checkpoints: of the run; none: the last one. A checkpoint that is named twice is evaluated once.
        needs_policy: False: existing kernels are evaluated, and the recipe may lack the keys of a policy.

    Raises:
        LookupFailed: neither exists, or the run lacks a checkpoint.
        UsageError: the recipe is invalid, or the retriever searches other data than the run did, and no override
            changes the retriever.
    """
    is_run = (Path(name) / "recipe.yaml").is_file() or bool(checkpoints)
    if not is_run:
        try:
            merged = merge_recipe(name, overrides)
            if not needs_policy:
                # Of `rewards` both mappings would be merged: the recipe's would get one more.
                missing = {key: value for key, value in _without_policy(registry).items() if key not in merged.data}
                merged = merge_layers([Merged(missing), merged])
            loaded = checked_recipe(find_recipe(name).stem, merged, registry)
        except UsageError as error:
            if not (Path("runs") / name / "recipe.yaml").is_file():
                if isinstance(error, LookupFailed):
                    known = {*recipes(), *(run.name for run in list_runs())}
                    raise LookupFailed(
                        f"no run or recipe {name!r}{nearest_name_or_path(name, known)}",
                        fix="kernelrl recipes list, kernelrl runs list",
                    ) from None
                raise
        else:
            show(loaded)
            label = f"the untrained policy of recipe {loaded.name!r}"
            return [EvalJob(loaded.recipe, registry, label, resolved=loaded.resolved)]
    return _jobs_of_run(find_run(name), overrides, checkpoints or ("last",), registry, show)


def _without_policy(registry: Registry) -> dict[str, Any]:
    """The recipe keys that have no default. Nothing starts the policy."""
    return {
        "tasks": {"use": registry.default("tasks")},
        "backend": {"use": registry.default("backends")},
        "policy": {"use": _without_options(registry, "policies")},
        "rewards": {"reward": {"use": _without_options(registry, "rewards")}},
    }


def _without_options(registry: Registry, kind: str) -> str:
    """The first component of a kind that requires no option."""
    names = [registry.label(kind, component) for component in registry.components(kind)]
    for name in names:
        fields = attrs.fields(registry.config_class(kind, name))
        if all(field.default is not attrs.NOTHING for field in fields):
            return name
    raise UsageError(f"the recipe lacks the key {kind}, and no component is installed that needs no option")


def _jobs_of_run(
    run: RunDir, overrides: Sequence[str], checkpoints: Sequence[str], registry: Registry, show: Show
) -> list[EvalJob]:
    loaded = run_recipe(run, registry, overrides)
    show(loaded)
    if not any(re.match(r"retriever[.=]", override) for override in overrides):
        same = retriever_identity(loaded.recipe, registry) == run.provenance().get("retriever", {})
        if not same:
            raise UsageError(
                f"the retriever searches other data than when run {run.path} started",
                fix="restore that index, or name another one: retriever.index=DIR",
                see="inputs-changed",
            )
    rows = [_checkpoint_row(run, checkpoint) for checkpoint in checkpoints]
    labels = {
        f"the untrained policy of run {run.path}" if row is None else f"checkpoint {row['name']} of run {run.path}": row
        for row in rows
    }
    return [EvalJob(loaded.recipe, registry, label, run, loaded.resolved, row) for label, row in labels.items()]


def _checkpoint_row(run: RunDir, checkpoint: str) -> Mapping[str, Any] | None:
    """The row of a checkpoint; None for `base`, the untrained policy.

    Raises:
        LookupFailed: the run lacks the checkpoint.
    """
    if checkpoint == "base":
        return None
    try:
        return choose_checkpoint(run, checkpoint, also=("base",))
    except LookupFailed as error:
        error.fix += "; --checkpoint base is the untrained policy" if not run.rows("checkpoints") else ""
        raise


def with_kernels(job: EvalJob, kernels: str, split: str | None) -> EvalJob:
    """The job with existing kernels in place of its policy.

    Args:
        kernels: a path or the name of a run; see `read_existing`.
        split: only tasks of this split. None: those of all splits.

    Raises:
        UsageError: the kernels cannot be read, or a file fits no task.
    """
    existing = read_existing(kernels, job.registry.make("tasks", job.recipe.tasks), split, job.registry)
    settings = attrs.evolve(job.recipe.eval, split=existing.splits, samples=PositiveInt(existing.samples))
    # Without a policy there is no prompt, and so no example to retrieve.
    recipe = attrs.evolve(job.recipe, eval=settings, retriever=None)
    label = f"the kernels of {kernels}"
    return attrs.evolve(job, recipe=recipe, label=label, checkpoint=None, existing=existing)
