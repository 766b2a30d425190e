"""`kernelrl runs list`: list runs with state and progress."""

from __future__ import annotations

import click

from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.runs.directory import list_runs
from kernelrl_core.runs.summary import run_facts


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:
    """List the runs below ./runs, oldest first, with state, progress and share of correct kernels.

    \b
    Examples:
      kernelrl runs list
      kernelrl runs list --json
    """
    found = [run_facts(run) for run in list_runs()]
    if as_json:
        print_json({"runs": found})
        return
    if not found:
        click.echo("no runs below ./runs; start one with: kernelrl run quickstart", err=True)
    rows = []
    for facts in found:
        if facts["damage"] is not None:
            rows.append((facts["run"], "damaged", "", facts["damage"]))
            continue
        rate = facts["last_correct_rate"]
        correct = "" if rate is None else f"correct {rate:.0%}"
        rows.append((facts["run"], facts["state"], f"{facts['steps']} of {facts['steps_total'] or '?'} steps", correct))
    if rows:
        print_lines(table(rows))
