"""`kernelrl recipes copy`: copy a recipe to edit it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from kernelrl_core.errors import UsageError
from kernelrl_core.planning.load import find_recipe
from kernelrl_core.storage import disk_error, write_atomically


@click.command("copy")
@click.argument("recipe")
@click.argument("destination", required=False)
def command(recipe: str, destination: str | None) -> None:
    """Copy RECIPE to DESTINATION, a file or directory (default: ./recipes). Never overwrites a file.

    \b
    Examples:
      kernelrl recipes copy quickstart
      kernelrl recipes copy quickstart my_recipe.yaml
    """
    source = find_recipe(recipe)
    target = Path(destination) if destination else Path("recipes")
    if target.is_dir() or not target.suffix:
        target = target / source.name
    if os.path.lexists(target):
        raise UsageError(
            f"{target} already exists",
            fix=f"kernelrl recipes copy {shlex.quote(recipe)} OTHER_NAME.yaml",
            see="output-file",
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, source.read_bytes())
    except OSError as error:
        raise disk_error(target, error) from None
    click.echo(str(target))
