"""`kernelrl runs rm`: delete runs."""

from __future__ import annotations

import sys

import click

from kernelrl_core.errors import UsageError
from kernelrl_core.runs.removal import remove_run, runs_to_remove


@click.command("rm")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--yes", is_flag=True, help="Delete without a question.")
def command(runs: tuple[str, ...], yes: bool) -> None:
    """Delete each RUN with its samples and checkpoints, after a question. A running one is refused.

    \b
    Example:
      kernelrl runs rm first second --yes
    """
    found = runs_to_remove(runs)
    if not yes:
        paths = ", ".join(str(run.path) for run in found)
        try:
            click.confirm(f"delete {paths} with all samples and checkpoints?", abort=True, err=True)
        except click.Abort:
            if sys.stdin.isatty():
                raise
            raise UsageError("nothing was deleted: the question was not confirmed", fix="add --yes") from None
    for run in found:
        remove_run(run)
        click.echo(f"deleted: {run.path}", err=True)
