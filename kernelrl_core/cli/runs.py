"""`kernelrl runs`: list, show and delete runs."""

from __future__ import annotations

import click

from kernelrl_core.cli.groups import PluginGroup

_COMMANDS = {
    "list": ("kernelrl_core.cli.runs_list", "List runs with state and progress."),
    "show": ("kernelrl_core.cli.runs_show", "Show the state and result of a run."),
    "rm": ("kernelrl_core.cli.runs_rm", "Delete runs."),
}


@click.group("runs", cls=PluginGroup, own=_COMMANDS)
def command() -> None:
    """List the runs below ./runs, show or delete them.

    \b
    Examples:
      kernelrl runs list
      kernelrl runs show first
    """
