"""`kernelrl recipes`: list, show, copy and convert recipes."""

from __future__ import annotations

from pathlib import Path

import click

from kernelrl_core.cli.output import print_json, require_output, table


@click.group("recipes")
def command() -> None:
    """List, show, copy and convert recipes.

    \b
    Examples:
      kernelrl recipes list
      kernelrl recipes show quickstart --resolved
      kernelrl recipes copy quickstart my_recipe.yaml
      kernelrl recipes convert rl_kernelbench.yaml
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
        {"name": name, "summary": _summary(path), "path": str(path), **header_entries(path)}
        for name, path in sorted(recipes().items())
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


@command.command("convert", short_help="Convert a configuration of another system.")
@click.argument("file")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--output", "-o", help="File for the recipe. Default: standard output.")
@click.option("--force", is_flag=True, help="Overwrite the file of --output.")
@click.option(
    "--from",
    "system",
    type=click.Choice(("kernel-rl", "kernelbench-tinker")),
    help="System of FILE. Default: that of its keys.",
)
def convert_command(file: str, overrides: tuple[str, ...], output: str | None, force: bool, system: str | None) -> None:
    """Convert FILE, a YAML configuration of kernel-rl or kernelbench-tinker, to a recipe.

    KEY=VALUE are overrides of that system, such as dataset_builder.level=2. A key without a place becomes a comment
    with its value and the reason. Before the recipe is written, it is checked as by 'kernelrl validate'.

    \b
    Examples:
      kernelrl recipes convert rl_kernelbench.yaml --output recipes/mine.yaml
      kernelrl recipes convert rl_kernelbench.yaml multiturn.enabled=true multiturn.n=8
    """
    from kernelrl_core.planning.conversion import convert, read_configuration, recipe_text
    from kernelrl_core.planning.load import checked_recipe
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.recipe.merge import Merged
    from kernelrl_core.recipe.problems import RecipeError
    from kernelrl_core.storage import write_atomically

    if output is not None:
        require_output(Path(output), force=force)
    given = read_configuration(Path(file).expanduser(), overrides, system or "")
    done = convert(given)
    name = output or f"recipes/{given.path.stem}.yaml"
    try:
        for warning in checked_recipe(name, Merged(done.recipe, done.origins), registry()).warnings:
            click.echo(f"warning: {warning}", err=True)
    except RecipeError as error:
        # A recipe for another machine may name a plugin that is not installed here.
        if not all(problem.missing for problem in error.problems):
            raise
        click.echo(f"warning: {error.message}", err=True)
    text = recipe_text(done, name)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(Path(output), text)
    click.echo(f"{given.system}: {len(done.placed)} keys converted, {len(done.homeless)} kept as comments", err=True)
    if output is not None:
        click.echo(output)


def _summary(path: Path) -> str:
    """The first sentence of the header comment, without the recipe's name."""
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline().strip()
    text = first.lstrip("# ") if first.startswith("#") else ""
    return text.removeprefix(f"{path.stem}:").strip()
