"""`kernelrl status`: how a run is doing."""

from __future__ import annotations

import json

import click


@click.command("status")
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(run: str, as_json: bool) -> None:
    """Say whether RUN is running, finished, stopped, failed or killed, and how far it is.

    \b
    Example:
      kernelrl status quickstart
    """
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.runs.summary import result_lines, summary

    facts = summary(find_run(run))
    if as_json:
        click.echo(json.dumps(facts))
        return
    lines = result_lines(facts)
    if facts["state"] in ("stopped", "failed", "killed"):
        lines.append(f"continue  kernelrl resume {facts['run']}")
    click.echo("\n".join(lines))
