"""`kernelrl validate`: check a recipe and report all of its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kernelrl_core.cli.loading import load
from kernelrl_core.cli.output import print_json, show_warnings
from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.problems import Problem, RecipeError


@click.command("validate")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(context: click.Context, recipe: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Check RECIPE and report all errors, with file, line and the nearest correct name.

    Also warns about keys that have no effect. Needs no API key, GPU or network, and starts nothing. Exit code 0: the
    recipe is valid; 2: it is not; 3: its only mistakes are plugins that are broken, disabled or not installed. An
    unknown name of a component counts as misspelt, unless it is that of a known plugin or written PLUGIN:NAME.

    \b
    Examples:
      kernelrl validate quickstart
      kernelrl validate my_recipe.yaml train.steps=10
    """
    try:
        loaded = load_recipe(recipe, overrides, registry=registry())
    except RecipeError as error:
        if not as_json:
            raise
        print_json({"recipe": recipe, "valid": False, "problems": _described(error.problems), "warnings": []})
        context.exit(int(error.exit_code))
    show_warnings(loaded, trains=True)
    if loaded.recipe.cost.budget_usd is not None:
        # The plan imports half of the core, and few recipes have a budget.
        facts = load("kernelrl_core.planning.plan:plan")(loaded.name, loaded.recipe, registry())
        for line in load("kernelrl_core.planning.plan:budget_lines")(facts):
            click.echo(line, err=True)
    if as_json:
        warnings = _described((*loaded.warnings, *loaded.training_warnings))
        files = [str(path) for path in loaded.sources]
        print_json({"recipe": loaded.name, "valid": True, "problems": [], "warnings": warnings, "files": files})
    else:
        click.echo(f"{loaded.name}: ok")


def _described(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    return [
        {
            "source": problem.origin.source,
            "line": problem.origin.line,
            "path": problem.path,
            "message": problem.message,
            "hint": problem.hint,
        }
        for problem in problems
    ]
