"""`kernelrl status`: show the state and progress of a run."""

from __future__ import annotations

import click

from kernelrl_core.cli.output import print_json, print_lines, table


@click.command("status")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(run: str, as_json: bool) -> None:
    """Show the state of RUN (running, finished, stopped, failed or killed), its progress and its results so far.

    RUN is a run directory or a name below ./runs.

    \b
    Example:
      kernelrl status quickstart
    """
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.runs.summary import result_rows, summary

    facts = summary(find_run(run))
    if as_json:
        print_json(facts)
        return
    rows = result_rows(facts)
    if facts["state"] in ("stopped", "failed", "killed"):
        rows.append(("continue", f"kernelrl resume {facts['run']}"))
    print_lines(table(rows))
