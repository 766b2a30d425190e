"""`kernelrl schema`: print the JSON schema of recipes."""

from __future__ import annotations

import click

from kernelrl_core.cli.output import print_json
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.json_schema import recipe_schema


@click.command("schema")
def command() -> None:
    """Print the JSON schema of recipes: all keys with help, type and default, and the options of installed components.

    Editors use it to complete and check recipe files.

    \b
    Examples:
      kernelrl schema > recipe.schema.json
    """
    print_json(recipe_schema(registry()), indent=2)
