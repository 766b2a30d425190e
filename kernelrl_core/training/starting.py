"""The begin of a run's training: a new run, a finished one with more steps, or an interrupted one.

Every function leaves the run locked; `execute_run` trains it and releases the lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelrl_core.errors import UsageError
from kernelrl_core.planning.load import LoadedRecipe
from kernelrl_core.planning.plan import preflight
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.differences import differences
from kernelrl_core.runs.directory import RunDir, find_run
from kernelrl_core.runs.provenance import policy_identity, provenance, retriever_identity
from kernelrl_core.training import continuation

__all__ = ["continued_recipe", "create_run", "existing_run", "extended_run", "lock_to_continue"]


def create_run(
    path: Path, loaded: LoadedRecipe, registry: Registry, *, overrides: Sequence[str], origin: str | None
) -> RunDir:
    """A new run, after the checks for everything that would stop it.

    Args:
        overrides: those of the recipe, for the provenance.
        origin: `RUN` or `RUN@CHECKPOINT`, whose weights the run begins with.

    Raises:
        UsageError: the run exists, or `origin` was trained with another policy.
        LookupFailed: there is no such origin.
        MissingPrerequisite: lists all missing prerequisites.
    """
    begins = continuation.choose_origin(origin, loaded.recipe.policy) if origin is not None else None
    run = RunDir(path)
    if not run.path.exists() or run.blank():
        preflight(loaded.recipe, registry)
    details = provenance(loaded.recipe, registry, sources=loaded.sources, overrides=overrides)
    if begins is not None:
        details["origin"] = begins.provenance()
    return RunDir.create(run.path, loaded.resolved, details, begins.files if begins is not None else None)


def existing_run(path: Path, loaded: LoadedRecipe, registry: Registry) -> RunDir | None:
    """The run at `path`, not locked; None if none was started there.

    Raises:
        UsageError: it was started with another recipe.
    """
    run = RunDir(path)
    if not (run.path / "provenance.json").exists() or run.blank():
        return None
    own = continuation.run_recipe(run, registry)
    if changed := differences(own.resolved, loaded.resolved):
        raise UsageError(
            f"run {run.path} was started with another recipe; it differs in {', '.join(changed)}",
            fix=f"kernelrl resume {run.word}, choose another --name, or raise train.steps of the finished run with "
            "--extend in place of --exist-ok",
            see="run-changed",
        )
    return run


def extended_run(path: Path, loaded: LoadedRecipe, registry: Registry) -> RunDir:
    """The finished run at `path` with the steps of `loaded`; see `extend_run`."""
    run = find_run(str(path))
    run.lock()
    continuation.extend_run(run, loaded, registry)
    return run


def lock_to_continue(run: RunDir, registry: Registry, *, accept_changes: bool = False) -> bool:
    """Lock a run for its next steps. False, without a lock, if the run is finished.

    Args:
        accept_changes: continue although the run's recipe.yaml was edited.

    Raises:
        UsageError: recipe.yaml was edited, or another process has locked the run.
    """
    changed = run.recipe_changed()
    if run.state()[0] == "finished" and not changed:
        return False
    run.lock()
    if changed and accept_changes:
        continuation.accept_changes(run, registry)
    continuation.require_unchanged(run)
    return True


def continued_recipe(run: RunDir, registry: Registry) -> LoadedRecipe:
    """The recipe of a run that continues.

    Raises:
        RecipeError: lists all mistakes of the recipe.
        UsageError: the index of the run's retriever, or the model of its policy, was changed.
    """
    loaded = continuation.run_recipe(run, registry)
    if retriever_identity(loaded.recipe, registry) != run.provenance().get("retriever", {}):
        raise UsageError(
            f"the retriever searches other data than when run {run.path} started",
            fix="restore the index that the run started with, or start a new run",
            see="inputs-changed",
        )
    if policy_identity(loaded.recipe) != run.provenance().get("policy", {}):
        raise UsageError(
            f"the model of the policy is another one than when run {run.path} started",
            fix="restore the model that the run started with, or start a new run",
            see="inputs-changed",
        )
    return loaded
