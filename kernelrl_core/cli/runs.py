"""`kernelrl runs`: list, show and delete runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kernelrl_core.cli.groups import PluginGroup
from kernelrl_core.cli.output import print_json, print_lines, table

if TYPE_CHECKING:
    from kernelrl_core.runs.directory import RunDir


@click.group("runs", cls=PluginGroup)
def command() -> None:
    """List the runs below ./runs, show or delete them.

    \b
    Examples:
      kernelrl runs list
      kernelrl runs show first
    """


@command.command("list", short_help="List runs with state and progress.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_command(as_json: bool) -> None:
    """List the runs below ./runs, oldest first, with state, progress and share of correct kernels.

    \b
    Examples:
      kernelrl runs list
      kernelrl runs list --json
    """
    from kernelrl_core.runs.directory import list_runs

    found = [run_facts(run) for run in list_runs()]
    if as_json:
        print_json({"runs": found})
        return
    if not found:
        click.echo("no runs below ./runs; start one with: kernelrl run quickstart", err=True)
    rows = []
    for facts in found:
        if facts["damage"] is not None:
            rows.append((facts["run"], facts["state"], "damaged", facts["damage"]))
            continue
        rate = facts["last_correct_rate"]
        correct = "" if rate is None else f"correct {rate:.0%}"
        rows.append((facts["run"], facts["state"], f"step {facts['steps']}/{facts['steps_total'] or '?'}", correct))
    if rows:
        print_lines(table(rows))


def run_facts(run: RunDir) -> dict[str, Any]:
    """The summary of a run; of a run whose files cannot be read, the message under `damage`."""
    from kernelrl_core.errors import KernelRLError
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.runs.summary import summary

    try:
        return {**summary(find_run(str(run.path))), "damage": None}
    except KernelRLError as error:
        return {"run": str(run.path), "state": run.state()[0], "damage": error.message}


@command.command("show", short_help="Show the state and result of a run.")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show_command(run: str, as_json: bool) -> None:
    """Show RUN: state, result, start time, version and latest checkpoint. --json adds the provenance.

    \b
    Examples:
      kernelrl runs show quickstart
      kernelrl runs show runs/quickstart --json
    """
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.runs.summary import result_rows, summary

    found = find_run(run)
    facts, origin = summary(found), found.provenance()
    checkpoints = list(dict.fromkeys(row["name"] for row in found.rows("checkpoints")))
    if as_json:
        print_json({**facts, "checkpoints": checkpoints, "provenance": origin})
        return
    rows = [*result_rows(facts), ("started", origin.get("started", "unknown"))]
    rows.append(("version", f"kernelrl {origin.get('kernelrl', 'unknown')}"))
    print_lines(table([*rows, ("latest checkpoint", checkpoints[-1] if checkpoints else "none")]))


@command.command("rm", short_help="Delete runs.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--yes", is_flag=True, help="Delete without a question.")
def rm_command(runs: tuple[str, ...], yes: bool) -> None:
    """Delete each RUN with its samples and checkpoints, after a question. A running one is refused.

    \b
    Example:
      kernelrl runs rm first second --yes
    """
    from pathlib import Path

    from kernelrl_core.errors import UsageError
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.storage import disk_error, remove_directory

    for name in runs:
        if Path(name).exists() and (Path("runs") / name).exists():
            raise UsageError(f"{name!r} is a path and the name of a run", fix=f"write ./{name} or runs/{name}")
    found = [find_run(name, damaged=True) for name in dict.fromkeys(runs)]
    if busy := [str(run.path) for run in found if run.locked()]:
        raise UsageError(
            f"in use by another process: {', '.join(busy)}", fix=f"kernelrl status {busy[0]}", see="run-in-use"
        )
    if not yes:
        paths = ", ".join(str(run.path) for run in found)
        try:
            click.confirm(f"delete {paths} with all samples and checkpoints?", abort=True, err=True)
        except click.Abort:
            if sys.stdin.isatty():
                raise
            raise UsageError("nothing was deleted: the question was not confirmed", fix="add --yes") from None
    for run in found:
        try:
            remove_directory(run.path)
        except OSError as error:
            raise disk_error(run.path, error) from error
        click.echo(f"deleted: {run.path}", err=True)
