"""`kernelrl tasks list`: list the tasks of a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.cli.task_source import source_of
from kernelrl_core.types import Task
from kernelrl_sources.dtypes import named_dtypes


@click.command("list")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--recipe", "-r", help="Use the task source of this recipe.")
@click.option("--use", help="Task source, such as starter (default) or kernelbench.")
@click.option("--split", help="Only this split.")
@click.option("--level", type=int, help="Only this level.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
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
        print_json({"tasks": [task_facts(task) for task in tasks]})
        return
    print_lines(table([_columns(task) for task in tasks]))
    click.echo(f"{len(tasks)} tasks", err=True)


def _columns(task: Task) -> tuple[str, ...]:
    level = "-" if task.level is None else str(task.level)
    return (task.id, f"level {level}", task.split, ",".join(named_dtypes(task.reference)), " ".join(task.flags))


def task_facts(task: Task) -> dict[str, Any]:
    """A task without its reference as plain data."""
    return {
        "id": task.id,
        "name": task.name,
        "level": task.level,
        "split": task.split,
        "named_dtypes": list(named_dtypes(task.reference)),
        "flags": list(task.flags),
        "sha256": task.sha256,
    }
