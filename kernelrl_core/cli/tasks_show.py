"""`kernelrl tasks show`: show a task and its PyTorch reference."""

from __future__ import annotations

from collections.abc import Sequence

import click

from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.cli.task_source import source_of
from kernelrl_core.cli.tasks_list import task_facts
from kernelrl_core.plugins.registry import registry
from kernelrl_core.tasks.lookup import find_task


@click.command("show")
@click.argument("task")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--recipe", "-r", help="Use the task source of this recipe.")
@click.option("--use", help="Task source, such as starter (default) or kernelbench.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(task: str, settings: Sequence[str], recipe: str | None, use: str | None, as_json: bool) -> None:
    """Show TASK, a task id or a file: its properties, the dtypes that it names, and its PyTorch reference.

    KEY=VALUE set options of the task source, or override recipe keys if --recipe is given.

    \b
    Examples:
      kernelrl tasks show starter/1/relu_double
      kernelrl tasks show my_task.py
      kernelrl tasks show kernelbench/1/19 --json
    """
    source = source_of(recipe, use, settings) if recipe or use or settings else None
    found = find_task(task, registry=registry(), source=source)
    if as_json:
        print_json({**task_facts(found), "precision": found.precision, "reference": found.reference})
        return
    facts = {key: " ".join(value) if isinstance(value, list) else value for key, value in task_facts(found).items()}
    print_lines(table([(f"# {key}", value) for key, value in facts.items()]))
    click.echo(found.reference, nl=not found.reference.endswith("\n"))
