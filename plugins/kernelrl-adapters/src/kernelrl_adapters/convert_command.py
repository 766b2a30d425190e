"""`kernelrl recipes convert`: convert a configuration of another system to a recipe."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("convert", short_help="Convert a configuration of another system.")
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
def command(file: str, overrides: tuple[str, ...], output: str | None, force: bool, system: str | None) -> None:
    """Convert FILE, a YAML configuration of kernel-rl or kernelbench-tinker, to a recipe.

    KEY=VALUE are overrides of that system, such as dataset_builder.level=2. A key without a place becomes a comment
    with its value and the reason. Before the recipe is written, it is checked as by 'kernelrl validate'.

    \b
    Examples:
      kernelrl recipes convert rl_kernelbench.yaml --output recipes/mine.yaml
      kernelrl recipes convert rl_kernelbench.yaml multiturn.enabled=true multiturn.n=8
    """
    from kernelrl_adapters.conversion import convert, read_configuration, recipe_text
    from kernelrl_core.api.commands import require_output
    from kernelrl_core.api.components import registry
    from kernelrl_core.api.config import write_atomically
    from kernelrl_core.api.recipes import Merged, RecipeError, checked_recipe

    if output is not None:
        require_output(Path(output), force=force)
    given = read_configuration(Path(file).expanduser(), overrides, system or "")
    done = convert(given)
    name = output or f"recipes/{given.path.stem}.yaml"
    try:
        checked = checked_recipe(name, Merged(done.recipe, done.origins), registry())
        for warning in (*checked.warnings, *checked.training_warnings):
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
