"""`kernelrl recipes`: list, show and copy recipes."""

from __future__ import annotations

from pathlib import Path

import click

from kernelrl_core.cli.groups import PluginGroup
from kernelrl_core.cli.output import print_json, table


@click.group("recipes", cls=PluginGroup)
def command() -> None:
    """List, show and copy recipes.

    \b
    Examples:
      kernelrl recipes list
      kernelrl recipes show quickstart --resolved
      kernelrl recipes copy quickstart my_recipe.yaml
    """


@command.command("list", short_help="List all recipes, with a line each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_command(as_json: bool) -> None:
    """List the recipes of ./recipes and the bundled ones, with their needs and their duration or amounts.

    A recipe of ./recipes hides a bundled one of its name.

    \b
    Examples:
      kernelrl recipes list
      kernelrl recipes list --json
    """
    from kernelrl_core.planning.duration import header_entries
    from kernelrl_core.planning.load import recipes

    rows = [
        {"name": name, "summary": _summary(path), "path": str(path), "needs": header["needs"], "costs": header["costs"]}
        for name, path in sorted(recipes().items())
        if (header := header_entries(path))
    ]
    if as_json:
        print_json({"recipes": rows})
        return
    for row, line in zip(rows, table([(row["name"], row["summary"]) for row in rows]), strict=True):
        click.echo(line)
        for key in ("needs", "costs"):
            if row[key]:
                click.echo(f"    {key}: {row[key]}")


@command.command("show", short_help="Print a recipe as written or resolved.")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--resolved", is_flag=True, help="Include inherited keys and all defaults.")
@click.option("--json", "as_json", is_flag=True, help="Print the resolved recipe as one JSON document.")
def show_command(recipe: str, overrides: tuple[str, ...], resolved: bool, as_json: bool) -> None:
    """Print RECIPE, a name or a path, as written or resolved. KEY=VALUE override keys of the resolved recipe.

    \b
    Examples:
      kernelrl recipes show quickstart
      kernelrl recipes show stage1 --resolved train.steps=5
    """
    from kernelrl_core.errors import UsageError
    from kernelrl_core.planning.load import find_recipe, load_recipe
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.runs.directory import recipe_text

    if not (resolved or as_json):
        if overrides:
            raise UsageError("KEY=VALUE requires --resolved", fix=f"kernelrl recipes show {recipe} --resolved …")
        click.echo(find_recipe(recipe).read_text(encoding="utf-8"), nl=False)
        return
    loaded = load_recipe(recipe, overrides, registry=registry())
    if as_json:
        print_json(loaded.resolved)
    else:
        click.echo(recipe_text(loaded.resolved), nl=False)


@command.command("copy", short_help="Copy a recipe to edit it.")
@click.argument("recipe")
@click.argument("destination", required=False)
def copy_command(recipe: str, destination: str | None) -> None:
    """Copy RECIPE to DESTINATION, a file or directory (default: ./recipes). Never overwrites a file.

    \b
    Examples:
      kernelrl recipes copy quickstart
      kernelrl recipes copy quickstart my_recipe.yaml
    """
    from kernelrl_core.errors import UsageError
    from kernelrl_core.planning.load import find_recipe

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
            f"{target} already exists", fix=f"kernelrl recipes copy {recipe} OTHER_NAME.yaml", see="output-file"
        ) from None
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from None
    click.echo(str(target))


def _summary(path: Path) -> str:
    """The first sentence of the header comment, without the recipe's name."""
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline().strip()
    text = first.lstrip("# ") if first.startswith("#") else ""
    return text.removeprefix(f"{path.stem}:").strip()
