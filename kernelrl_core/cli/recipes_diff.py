"""`kernelrl recipes diff`: the keys in which two recipes differ."""

from __future__ import annotations

import click

from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.differences import changes
from kernelrl_core.recipe.field_docs import yaml_text


@click.command("diff")
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(one: str, other: str, overrides: tuple[str, ...], as_json: bool) -> None:
    """Print the keys in which the resolved recipes A and B differ.

    A and B are names or paths, such as runs/NAME/recipe.yaml. KEY=VALUE override keys of B.

    \b
    Examples:
      kernelrl recipes diff kevin kevin_tinker
      kernelrl recipes diff runs/first/recipe.yaml quickstart train.steps=20
    """
    base = load_recipe(one, registry=registry())
    changed = load_recipe(other, overrides, registry=registry())
    found = changes(base.resolved, changed.resolved)
    if as_json:
        rows = [{"key": key, "a": before, "b": after} for key, before, after in found]
        print_json({"a": base.name, "b": changed.name, "differences": rows})
    elif not found:
        click.echo(f"{one} and {other} are equal")
    else:
        rows_of_text = [(key, yaml_text(before), yaml_text(after)) for key, before, after in found]
        print_lines(table([("key", base.name, changed.name), *rows_of_text]))
