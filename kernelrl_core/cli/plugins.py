"""`kernelrl plugins`: list and describe plugins."""

from __future__ import annotations

import click

from kernelrl_core.cli.groups import PluginGroup

_COMMANDS = {
    "list": ("kernelrl_core.cli.plugins_list", "List plugins and their components."),
    "show": ("kernelrl_core.cli.plugins_show", "Show the components and options of a plugin."),
}


@click.group("plugins", cls=PluginGroup, own=_COMMANDS)
def command() -> None:
    """List and describe plugins.

    \b
    Examples:
      kernelrl plugins list
      kernelrl plugins show rewards
    """
