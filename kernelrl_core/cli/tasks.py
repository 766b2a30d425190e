"""`kernelrl tasks`: list, show and audit tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kernelrl_core.cli import tasks_audit
from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.cli.task_source import source_of

if TYPE_CHECKING:
    from kernelrl_core.types import Task

_recipe = click.option("--recipe", "-r", help="Use the task source of this recipe.")
_use = click.option("--use", help="Task source, such as starter (default) or kernelbench.")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group("tasks")
def command() -> None:
    """List, show and audit tasks. Only 'audit' executes task code.

    \b
    Examples:
      kernelrl tasks list --split held_out
      kernelrl tasks show starter/1/relu_double
      kernelrl tasks audit my_task.py
    """


command.add_command(tasks_audit.command)


@command.command("list", short_help="List the tasks of a source.")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@_recipe
@_use
@click.option("--split", help="Only this split.")
@click.option("--level", type=int, help="Only this level.")
@_json
def list_command(
    settings: Sequence[str], recipe: str | None, use: str | None, split: str | None, level: int | None, as_json: bool
) -> None:
    """List the tasks of a source: id, level, split, dtypes that the source names, audit flags.

    The tasks are parsed and not executed, so a dtype that no name states is missing; 'kernelrl tasks audit' reports the
    dtypes that the tensors have. A source that names none uses float32 for floating-point numbers.

    KEY=VALUE set options of the task source, or override recipe keys if --recipe is given.

    \b
    Examples:
      kernelrl tasks list
      kernelrl tasks list --split held_out --level 2
      kernelrl tasks list --use kernelbench levels=[1,2] holdout=kevin
      kernelrl tasks list --recipe stage1 tasks.levels=[1] --json
    """
    source = source_of(recipe, use, settings)
    splits = [split] if split else source.splits()
    tasks = [task for name in splits for task in source.tasks(name) if level in (None, task.level)]
    if as_json:
        print_json({"tasks": [_row(task) for task in tasks]})
        return
    print_lines(table([_columns(task) for task in tasks]))
    click.echo(f"{len(tasks)} tasks", err=True)


@command.command("show", short_help="Show a task and its PyTorch reference.")
@click.argument("task")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@_recipe
@_use
@_json
def show_command(task: str, settings: Sequence[str], recipe: str | None, use: str | None, as_json: bool) -> None:
    """Show TASK, a task id or a file: its properties, the dtypes that it names, and its PyTorch reference.

    KEY=VALUE set options of the task source, or override recipe keys if --recipe is given.

    \b
    Examples:
      kernelrl tasks show starter/1/relu_double
      kernelrl tasks show my_task.py
      kernelrl tasks show kernelbench/1/19 --json
    """
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.tasks.lookup import find_task

    source = source_of(recipe, use, settings) if recipe or use or settings else None
    found = find_task(task, registry=registry(), source=source)
    if as_json:
        print_json({**_row(found), "precision": found.precision, "reference": found.reference})
        return
    facts = {key: " ".join(value) if isinstance(value, list) else value for key, value in _row(found).items()}
    print_lines(table([(f"# {key}", value) for key, value in facts.items()]))
    click.echo(found.reference, nl=not found.reference.endswith("\n"))


def _columns(task: Task) -> tuple[str, ...]:
    from kernelrl_core.sources.dtypes import named_dtypes

    level = "-" if task.level is None else str(task.level)
    return (task.id, f"level {level}", task.split, ",".join(named_dtypes(task.reference)), " ".join(task.flags))


def _row(task: Task) -> dict[str, Any]:
    from kernelrl_core.sources.dtypes import named_dtypes

    return {
        "id": task.id,
        "name": task.name,
        "level": task.level,
        "split": task.split,
        "named_dtypes": list(named_dtypes(task.reference)),
        "flags": list(task.flags),
        "sha256": task.sha256,
    }
