"""`kernelrl status`: show the state and progress of a run, or list the active runs."""

from __future__ import annotations

import shlex

import click

from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.monitoring.progress import progress_text
from kernelrl_core.runs.directory import find_run, list_runs
from kernelrl_core.runs.summary import result_rows, run_facts, summary


@click.command("status")
@click.argument("run", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(run: str | None, as_json: bool) -> None:
    """Show the state of RUN (running, finished, stopped, failed or killed), its progress and its results so far.

    RUN is a run directory or a name below ./runs. Without RUN: the active runs below ./runs, with their progress.

    \b
    Examples:
      kernelrl status
      kernelrl status quickstart
    """
    if run is None:
        _list_active(as_json=as_json)
        return
    facts = summary(find_run(run))
    if as_json:
        print_json(facts)
        return
    rows = result_rows(facts)
    if facts["state"] in ("stopped", "failed", "killed"):
        rows.append(("continue", f"kernelrl resume {shlex.quote(facts['run'])}"))
    print_lines(table(rows))


def _list_active(*, as_json: bool) -> None:
    found = [run_facts(run) for run in list_runs() if run.locked()]
    if as_json:
        print_json({"runs": found})
        return
    if not found:
        click.echo("no run below ./runs is active; 'kernelrl runs list' lists all runs", err=True)
        return
    rows = []
    for facts in found:
        if facts["damage"] is not None:
            rows.append((facts["run"], "damaged", facts["damage"]))
            continue
        progress = "" if facts["progress"] is None else progress_text(facts["progress"])
        rows.append((facts["run"], f"{facts['steps']} of {facts['steps_total'] or '?'} steps", progress))
    print_lines(table(rows))
