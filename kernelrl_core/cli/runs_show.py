"""`kernelrl runs show`: show the state and result of a run."""

from __future__ import annotations

import click

from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.runs.directory import find_run
from kernelrl_core.runs.summary import result_rows, summary


@click.command("show")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(run: str, as_json: bool) -> None:
    """Show RUN: state, result, start time, version and latest checkpoint. --json adds the provenance.

    \b
    Examples:
      kernelrl runs show quickstart
      kernelrl runs show runs/quickstart --json
    """
    found = find_run(run)
    facts, origin = summary(found), found.provenance()
    checkpoints = list(dict.fromkeys(row["name"] for row in found.rows("checkpoints")))
    if as_json:
        print_json({**facts, "checkpoints": checkpoints, "provenance": origin})
        return
    rows = [*result_rows(facts), ("started", origin.get("started", "unknown"))]
    rows.append(("version", f"kernelrl {origin.get('kernelrl', 'unknown')}"))
    print_lines(table([*rows, ("latest checkpoint", checkpoints[-1] if checkpoints else "none")]))
