"""`kernelrl recipes show`: print a recipe as written or resolved."""

from __future__ import annotations

import shlex

import click

from kernelrl_core.cli.output import print_json
from kernelrl_core.errors import UsageError
from kernelrl_core.planning.load import find_recipe, load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.directory import recipe_text


@click.command("show")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--resolved", is_flag=True, help="Include inherited keys and all defaults.")
@click.option("--json", "as_json", is_flag=True, help="Print the resolved recipe as one JSON document.")
def command(recipe: str, overrides: tuple[str, ...], resolved: bool, as_json: bool) -> None:
    """Print RECIPE, a name or a path, as written or resolved. KEY=VALUE override keys of the resolved recipe.

    \b
    Examples:
      kernelrl recipes show quickstart
      kernelrl recipes show stage1 --resolved train.steps=5
    """
    if not (resolved or as_json):
        if overrides:
            raise UsageError(
                "KEY=VALUE requires --resolved", fix=f"kernelrl recipes show {shlex.quote(recipe)} --resolved …"
            )
        click.echo(find_recipe(recipe).read_text(encoding="utf-8"), nl=False)
        return
    loaded = load_recipe(recipe, overrides, registry=registry())
    if as_json:
        print_json(loaded.resolved)
    else:
        click.echo(recipe_text(loaded.resolved), nl=False)
