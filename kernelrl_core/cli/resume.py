"""`kernelrl resume`: continue an interrupted run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kernelrl_core.cli.output import print_result

if TYPE_CHECKING:
    from kernelrl_core.cli.detach import Detached
    from kernelrl_core.errors import ExitCode
    from kernelrl_core.planning.load import LoadedRecipe
    from kernelrl_core.runs.directory import RunDir


@click.command("resume")
@click.argument("run")
@click.option("--accept-changes", is_flag=True, help="Continue although the run's recipe.yaml was edited.")
@click.option("--detach", is_flag=True, help="Continue without this terminal when the run has started; see its log.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.pass_context
def command(context: click.Context, run: str, accept_changes: bool, detach: bool, as_json: bool) -> None:
    """Continue RUN, a run directory or a name below ./runs.

    Recorded replies and evaluations are reused, not repeated. For a finished run, only the result is printed, unless
    its recipe.yaml was given more steps; 'kernelrl run --extend' does that in one command.

    \b
    Examples:
      kernelrl resume quickstart
      kernelrl resume runs/quickstart --detach
    """
    from kernelrl_core.cli.detach import detach as detach_now
    from kernelrl_core.runs.directory import find_run

    found = find_run(run)
    detached = detach_now(as_json=as_json) if detach else None
    continue_run(context, found, accept_changes=accept_changes, as_json=as_json, detached=detached)


def continue_run(
    context: click.Context,
    run: RunDir,
    *,
    accept_changes: bool = False,
    as_json: bool = False,
    detached: Detached | None = None,
) -> None:
    """Resume an existing run, print its result, and exit with its exit code.

    Args:
        detached: this process, if it is detached from the terminal.

    Raises:
        UsageError: the recipe of the run or the index of its retriever was changed, or another process has locked the
            run.
    """
    changed = run.recipe_changed()
    if run.state()[0] == "finished" and not changed:
        print_result(run, as_json=as_json)
        return
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.training import continuation

    run.lock()
    if changed and accept_changes:
        continuation.accept_changes(run, registry())
    continuation.require_unchanged(run)
    train_on(context, run, as_json=as_json, detached=detached)


def train_on(context: click.Context, run: RunDir, *, as_json: bool, detached: Detached | None = None) -> None:
    """Train a locked run from its last checkpoint, print its result, and exit with its exit code.

    Raises:
        UsageError: the index of the run's retriever was changed.
    """
    from kernelrl_core.errors import UsageError
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.runs.provenance import retriever_identity
    from kernelrl_core.training.continuation import notices, run_recipe

    loaded = run_recipe(run, registry())
    for notice in notices(run):
        click.echo(f"note: {notice}", err=True)
    if retriever_identity(loaded.recipe, registry()) != run.provenance().get("retriever", {}):
        raise UsageError(
            f"the retriever searches other data than when run {run.path} started",
            fix="restore the index that the run started with, or start a new run",
            see="inputs-changed",
        )
    code = execute(run, loaded, detached)
    print_result(run, as_json=as_json)
    context.exit(code)


def execute(run: RunDir, loaded: LoadedRecipe, detached: Detached | None) -> ExitCode:
    """Train a locked run, after a detached process has left the terminal; see `execute_run`."""
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.training.execution import execute_run

    if detached is not None:
        detached.begin(run)
    return execute_run(run, loaded.recipe, loaded.resolved, registry())
