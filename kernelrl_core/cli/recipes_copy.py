"""`kernelrl recipes copy`: copy a recipe to edit it."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kernelrl_core.errors import UsageError
from kernelrl_core.planning.load import find_recipe


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
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(source.read_bytes())
    except FileExistsError:
        raise UsageError(
            f"{target} already exists",
            fix=f"kernelrl recipes copy {shlex.quote(recipe)} OTHER_NAME.yaml",
            see="output-file",
        ) from None
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from None
    click.echo(str(target))
