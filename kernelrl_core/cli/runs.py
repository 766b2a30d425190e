"""`kernelrl runs`: list and show runs."""

from __future__ import annotations

import json

import click


@click.group("runs")
def command() -> None:
    """List and show the runs below ./runs."""


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_command(as_json: bool) -> None:
    """List the runs, oldest first."""
    from kernelrl_core.errors import KernelRLError
    from kernelrl_core.results import summary
    from kernelrl_core.rundir import list_runs

    found = []
    for run in list_runs():
        try:
            found.append(summary(run))
        except KernelRLError as error:
            click.echo(f"kernelrl: {error.message}", err=True)
    if as_json:
        click.echo(json.dumps({"runs": found}))
        return
    if not found:
        click.echo("no runs below ./runs; begin one with: kernelrl run quickstart", err=True)
    for facts in found:
        rate = facts["last_correct_rate"]
        total = facts["steps_total"] or "?"
        correct = "" if rate is None else f"  correct {rate:.0%}"
        click.echo(f"{facts['run']:<44}{facts['state']:<10}step {facts['steps']}/{total}{correct}")


@command.command("show")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show_command(run: str, as_json: bool) -> None:
    """Show a run: its state, its result and where it came from."""
    from kernelrl_core.results import result_lines, summary
    from kernelrl_core.rundir import find_run

    found = find_run(run)
    facts, origin = summary(found), found.provenance()
    checkpoints = [row["name"] for row in found.rows("checkpoints")]
    if as_json:
        click.echo(json.dumps({**facts, "checkpoints": checkpoints, "provenance": origin}))
        return
    lines = result_lines(facts)
    lines += [f"began     {origin['started']}", f"version   kernelrl {origin['kernelrl']}"]
    lines += [f"saved     {checkpoints[-1] if checkpoints else 'no checkpoint'}"]
    click.echo("\n".join(lines))
