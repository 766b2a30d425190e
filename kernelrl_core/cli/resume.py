"""`kernelrl resume`: continue an interrupted run."""

from __future__ import annotations

import click

from kernelrl_core.cli.detach import detach as detach_now
from kernelrl_core.cli.run_result import print_result
from kernelrl_core.cli.training import train
from kernelrl_core.errors import UsageError
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.directory import RunDir, find_run
from kernelrl_core.training.starting import continued_recipe, lock_to_continue


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
    found = find_run(run)
    _require_training(found)
    detached = detach_now(as_json=as_json) if detach else None
    if not lock_to_continue(found, registry(), accept_changes=accept_changes):
        print_result(found, as_json=as_json)
        return
    code = train(found, continued_recipe(found, registry()), detached)
    print_result(found, as_json=as_json)
    context.exit(code)


def _require_training(run: RunDir) -> None:
    """
    Raises:
        UsageError: another command made the run, and continues it.
    """
    if (command := run.provenance().get("continued_by")) is not None:
        raise UsageError(f"run {run.path} is no training run", fix=f"{command} {run.path}", see="run-changed")
