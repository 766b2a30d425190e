"""Continuing a run: more steps for a finished one (`--extend`), or a new run from its weights (`--from`)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.errors import KernelRLError, UsageError
from kernelrl_core.planning.load import LoadedRecipe, load_recipe
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.differences import changes, differences
from kernelrl_core.recipe.structure import component_block
from kernelrl_core.runs.checkpoints import checkpoint_damage, choose_checkpoint
from kernelrl_core.runs.directory import RunDir, find_run
from kernelrl_core.sources.yaml import load_yaml
from kernelrl_core.tasks.curriculum import TaskSchedule
from kernelrl_core.tasks.selection import training_tasks

__all__ = ["Origin", "accept_changes", "choose_origin", "extend_run", "run_recipe"]


def run_recipe(run: RunDir, registry: Registry, overrides: Sequence[str] = ()) -> LoadedRecipe:
    """The recipe of a run, from its recipe.yaml.

    Raises:
        RecipeError: lists all mistakes.
    """
    path = run.path / "recipe.yaml"
    given = {override.partition("=")[0].strip() for override in overrides}
    saved = load_yaml(path.read_text(encoding="utf-8"), path)
    data = saved if isinstance(saved, dict) else {}
    ignored = [] if "forbid" in given else _without_ignored_rules(data, registry)
    return load_recipe(str(path), (*ignored, *overrides), registry=registry)


def _without_ignored_rules(saved: Mapping[str, Any], registry: Registry) -> list[str]:
    """The override of `forbid` that removes the rules which none of the checkers has. Early runs saved a fixed default
    of `forbid`, whatever their checkers were."""
    forbid, checkers = saved.get("forbid"), saved.get("checkers")
    if not isinstance(forbid, list):
        return []
    known: set[str] = set()
    for block in checkers.values() if isinstance(checkers, Mapping) else ():
        try:
            checker = registry.make("checkers", component_block("checkers", block, registry))
        except KernelRLError:
            return []  # reported with everything else that is wrong in the recipe
        known |= {rule.id for rule in checker.rules}
    kept = [rule for rule in forbid if rule in known]
    return [f"forbid=[{', '.join(kept)}]"] if kept != forbid else []


def extend_run(run: RunDir, wanted: LoadedRecipe, registry: Registry) -> None:
    """Give a finished run the recipe `wanted`, which differs from its own in a higher `train.steps` only, so that the
    run continues. It then equals a run that was started with `wanted`. The caller holds the lock of the run.

    Raises:
        UsageError: the run is not finished, another key differs, or the number of steps cannot be raised.
    """
    if (state := run.state()[0]) != "finished":
        raise UsageError(
            f"--extend: run {run.path} is not finished, but {state}",
            fix=f"kernelrl resume {run.word}",
            see="run-changed",
        )
    require_unchanged(run)
    own = run_recipe(run, registry)
    old, new = own.recipe.train.steps, wanted.recipe.train.steps
    others = [change for change in changes(own.resolved, wanted.resolved) if change[0] not in _LENGTH]
    if others:
        listed = ", ".join(differences(own.resolved, wanted.resolved))
        raise UsageError(
            f"--extend changes train.steps only; run {run.path} and this recipe differ in {listed}",
            fix=f"kernelrl run {run.word}/recipe.yaml --name {shlex.quote(run.name)} --extend train.steps=N",
            see="run-changed",
        )
    branch = f"train a new run from its weights: kernelrl run RECIPE --from {run.word}"
    if old is None or new is None:
        raise UsageError(
            f"--extend: {'run ' + str(run.path) if old is None else 'this recipe'} has its number of steps from "
            "train.epochs, whose last batch may be smaller than that of a longer run",
            fix=branch if old is None else f"train.steps=N with N above {old}",
            see="run-changed",
        )
    if new <= old:
        raise UsageError(f"--extend: train.steps={new} is not above the {old} steps that run {run.path} has made")
    train = own.recipe.train
    if train.warmup_ratio > 0 or train.learning_rate_schedule != "constant":
        key = "train.warmup_ratio" if train.warmup_ratio > 0 else "train.learning_rate_schedule"
        raise UsageError(
            f"--extend: the learning rates of run {run.path} depend on its number of steps ({key}), so a "
            "longer run would have had others",
            fix=branch,
            see="run-changed",
        )
    run.replace_recipe(wanted.resolved)


def accept_changes(run: RunDir, registry: Registry) -> None:
    """Accept an edited recipe.yaml of a run. The caller holds the lock of the run.

    Raises:
        RecipeError: lists all mistakes of the recipe.
        UsageError: the run is finished, and the edited recipe has no further step.
    """
    recipe = run_recipe(run, registry).recipe
    rows = run.rows("checkpoints")
    done = int(rows[-1]["loop"]["next_step"]) if rows else 0
    if run.state()[0] == "finished":
        tasks = training_tasks(registry.make("tasks", recipe.tasks), recipe.train, recipe.eval.split)[0]
        planned = TaskSchedule(tasks, recipe).n_steps
        if planned <= done:
            raise UsageError(
                f"run {run.path} is finished: it has made {done} steps, and the changed recipe has {planned}, so the "
                "changes would have no effect",
                fix=f"raise train.steps, or start a new run: kernelrl run {run.word}/recipe.yaml --from {run.word}",
                see="run-changed",
            )
    run.accept_recipe()


def require_unchanged(run: RunDir) -> None:
    """
    Raises:
        UsageError: recipe.yaml was edited after the run started.
    """
    if run.recipe_changed():
        raise UsageError(
            f"{run.path / 'recipe.yaml'} was changed after the run started",
            fix=f"undo the change, or kernelrl resume {run.word} --accept-changes",
            see="run-changed",
        )


@attrs.frozen
class Origin:
    """The checkpoint of another run whose weights a new run begins with."""

    run: RunDir
    row: Mapping[str, Any]
    """Its row of `checkpoints.jsonl`."""

    @property
    def files(self) -> Path:
        return self.run.checkpoints / str(self.row["name"])

    def provenance(self) -> dict[str, Any]:
        """Entry `origin` of the new run's `provenance.json`."""
        return {
            "run": str(self.run.path.absolute()),
            "recipe_sha256": self.run.provenance().get("recipe_sha256"),
            "checkpoint": self.row["name"],
            "policy": self.row["policy"],
        }


def choose_origin(text: str, policy: Use) -> Origin:
    """The checkpoint that `RUN` (its last one) or `RUN@CHECKPOINT` means.

    Args:
        policy: that of the new run.

    Raises:
        LookupFailed: there is no such run or checkpoint.
        UsageError: the run was trained with another policy, or another kind of model.
        KernelRLError: the files of the checkpoint are damaged.
    """
    name, _, checkpoint = text.partition("@")
    run = find_run(name)
    path = run.path / "recipe.yaml"
    saved = load_yaml(path.read_text(encoding="utf-8"), path)
    theirs = saved.get("policy", {}).get("use") if isinstance(saved, dict) else None
    if str(theirs).split(":")[-1] != policy.use.split(":")[-1]:
        raise UsageError(
            f"--from {text}: run {run.path} was trained with policy {theirs!r}, and the recipe has policy "
            f"{policy.use!r}",
            fix=f"choose a recipe with policy.use={theirs}",
            see="checkpoint-model",
        )
    their_model = saved.get("policy", {}).get("model") if isinstance(saved, dict) else None
    our_model = policy.raw.get("model")
    if (their_model is None) != (our_model is None):
        kinds = ["a model from scratch" if model is None else model for model in (their_model, our_model)]
        raise UsageError(
            f"--from {text}: run {run.path} was trained with {kinds[0]}, and the recipe has {kinds[1]}",
            fix=f"set policy.model={their_model if their_model is not None else 'null'}",
            see="checkpoint-model",
        )
    row = choose_checkpoint(run, checkpoint or "last")
    if damage := checkpoint_damage(run.checkpoints, row):
        raise KernelRLError(
            f"--from {text}: checkpoint {row['name']} is damaged: {damage}",
            fix=f"choose an earlier one, see kernelrl runs show {run.word}",
            see="checkpoint",
        )
    return Origin(run, row)


_LENGTH = ("train.steps", "train.epochs")
