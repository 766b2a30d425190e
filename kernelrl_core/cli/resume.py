"""`kernelrl resume`: continue an interrupted run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kernelrl_core.cli.output import print_json, print_lines, table

if TYPE_CHECKING:
    from kernelrl_core.runs.directory import RunDir


@click.command("resume")
@click.argument("run")
@click.option("--accept-changes", is_flag=True, help="Continue although the run's recipe.yaml was edited.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.pass_context
def command(context: click.Context, run: str, accept_changes: bool, as_json: bool) -> None:
    """Continue RUN, a run directory or a name below ./runs.

    Recorded replies and evaluations are reused, not repeated. For a finished run, only the result is printed.

    \b
    Examples:
      kernelrl resume quickstart
      kernelrl resume runs/quickstart
    """
    from kernelrl_core.runs.directory import find_run

    continue_run(context, find_run(run), accept_changes=accept_changes, as_json=as_json)


def continue_run(context: click.Context, run: RunDir, *, accept_changes: bool = False, as_json: bool = False) -> None:
    """Resume an existing run, print its result, and exit with its exit code.

    Raises:
        UsageError: the recipe of the run or the index of its retriever was changed, or another process has locked the
            run.
    """
    if run.state()[0] == "finished":
        print_result(run, as_json=as_json)
        return
    from kernelrl_core.errors import UsageError
    from kernelrl_core.planning.load import load_recipe
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.runs.provenance import retriever_identity
    from kernelrl_core.training.execution import execute_run

    run.lock()
    if run.recipe_changed():
        if not accept_changes:
            raise UsageError(
                f"{run.path / 'recipe.yaml'} was changed after the run started",
                fix=f"undo the change, or kernelrl resume {run.path} --accept-changes",
            )
        run.accept_recipe()
    loaded = load_recipe(str(run.path / "recipe.yaml"), _keys_added_since(run), registry=registry())
    if retriever_identity(loaded.recipe, registry()) != run.provenance().get("retriever", {}):
        raise UsageError(
            f"the retriever searches other data than when run {run.path} started",
            fix="restore the index that the run started with, or start a new run",
        )
    code = execute_run(run, loaded.recipe, loaded.resolved, registry())
    print_result(run, as_json=as_json)
    context.exit(code)


def _keys_added_since(run: RunDir) -> tuple[str, ...]:
    """Overrides that keep the training tasks of a run whose version had no `train.decontaminate`."""
    from kernelrl_core.sources.yaml import load_yaml

    path = run.path / "recipe.yaml"
    saved = load_yaml(path.read_text(encoding="utf-8"), path)
    train = saved.get("train") if isinstance(saved, dict) else None
    return ("train.decontaminate=false",) if isinstance(train, dict) and "decontaminate" not in train else ()


def print_result(run: RunDir, *, as_json: bool) -> None:
    """Print the result of a run on stdout."""
    from kernelrl_core.runs.summary import result_rows, summary

    facts = summary(run)
    if as_json:
        print_json(facts)
    else:
        print_lines(table(result_rows(facts)))
