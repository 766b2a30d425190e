"""`kernelrl resume`: continue a run exactly where it stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kernelrl_core.cli.output import print_json, print_lines, table

if TYPE_CHECKING:
    from kernelrl_core.runs.directory import RunDir


@click.command("resume")
@click.argument("run")
@click.option("--accept-changes", is_flag=True, help="Go on although recipe.yaml was edited after the run began.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.pass_context
def command(context: click.Context, run: str, accept_changes: bool, as_json: bool) -> None:
    """Continue RUN, a directory or a name below runs/, from its journals.

    What was sampled and judged before is not sampled or judged again. A finished run only shows its result.

    \b
    Examples:
      kernelrl resume quickstart
      kernelrl resume runs/quickstart
    """
    from kernelrl_core.runs.directory import find_run

    continue_run(context, find_run(run), accept_changes=accept_changes, as_json=as_json)


def continue_run(context: click.Context, run: RunDir, *, accept_changes: bool = False, as_json: bool = False) -> None:
    """Resume a run that exists, show its result, and leave with the exit code.

    Raises:
        UsageError: its recipe was changed, or another process is at work on it.
    """
    if run.state()[0] == "finished":
        print_result(run, as_json=as_json)
        return
    from kernelrl_core.errors import UsageError
    from kernelrl_core.planning.load import load_recipe
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.training.execution import execute_run

    run.lock()
    if run.recipe_changed():
        if not accept_changes:
            raise UsageError(
                f"{run.path / 'recipe.yaml'} was changed after the run began",
                fix="undo the change, or resume with --accept-changes",
            )
        run.accept_recipe()
    loaded = load_recipe(str(run.path / "recipe.yaml"), registry=registry())
    code = execute_run(run, loaded.recipe, loaded.resolved, registry())
    print_result(run, as_json=as_json)
    context.exit(code)


def print_result(run: RunDir, *, as_json: bool) -> None:
    """What came of a run, on stdout."""
    from kernelrl_core.runs.summary import result_rows, summary

    facts = summary(run)
    if as_json:
        print_json(facts)
    else:
        print_lines(table(result_rows(facts)))
