"""`kernelrl tasks`: list and show tasks."""

from __future__ import annotations

import click

from kernelrl_core.cli.groups import PluginGroup

_COMMANDS = {
    "list": ("kernelrl_core.cli.tasks_list", "List the tasks of a source."),
    "show": ("kernelrl_core.cli.tasks_show", "Show a task and its PyTorch reference."),
}


@click.group("tasks", cls=PluginGroup, own=_COMMANDS)
def command() -> None:
    """List, show and audit tasks. Only 'audit' executes task code.

    \b
    Examples:
      kernelrl tasks list --split held_out
      kernelrl tasks show starter/1/relu_double
      kernelrl tasks audit my_task.py
    """
