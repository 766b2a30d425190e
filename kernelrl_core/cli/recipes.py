"""`kernelrl recipes`: list, show, compare and copy recipes."""

from __future__ import annotations

import click

from kernelrl_core.cli.groups import PluginGroup

_COMMANDS = {
    "list": ("kernelrl_core.cli.recipes_list", "List all recipes, with a line each."),
    "show": ("kernelrl_core.cli.recipes_show", "Print a recipe as written or resolved."),
    "diff": ("kernelrl_core.cli.recipes_diff", "Print the keys in which two recipes differ."),
    "copy": ("kernelrl_core.cli.recipes_copy", "Copy a recipe to edit it."),
}


@click.group("recipes", cls=PluginGroup, own=_COMMANDS)
def command() -> None:
    """List, show, compare and copy recipes.

    \b
    Examples:
      kernelrl recipes list
      kernelrl recipes show quickstart --resolved
      kernelrl recipes diff kevin kevin_tinker
      kernelrl recipes copy quickstart my_recipe.yaml
    """
