"""`kernelrl validate`: report every error of a recipe at once."""

from __future__ import annotations

import click

from kernelrl_core.cli.output import print_json


@click.command("validate")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(context: click.Context, recipe: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Report every error of RECIPE at once. Needs no key, GPU or network, and starts nothing.

    \b
    Examples:
      kernelrl validate quickstart
      kernelrl validate my_recipe.yaml train.steps=10
    """
    from kernelrl_core.planning.load import load_recipe
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.recipe.problems import RecipeError

    try:
        loaded = load_recipe(recipe, overrides, registry=registry())
    except RecipeError as error:
        if not as_json:
            raise
        problems = [
            {
                "source": problem.origin.source,
                "line": problem.origin.line,
                "path": problem.path,
                "message": problem.message,
                "hint": problem.hint,
            }
            for problem in error.problems
        ]
        print_json({"recipe": recipe, "valid": False, "problems": problems})
        context.exit(int(error.exit_code))
    if loaded.recipe.cost.budget_usd is not None:
        from kernelrl_core.planning.plan import budget_lines, plan

        for line in budget_lines(plan(loaded.name, loaded.recipe, registry())):
            click.echo(line, err=True)
    if as_json:
        print_json({"recipe": loaded.name, "valid": True, "problems": []})
    else:
        click.echo(f"{loaded.name}: ok")
