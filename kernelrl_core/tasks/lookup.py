"""Lookup of the task that a command names, by file or id.

A task file is validated by its syntax tree. Its code is executed only in the judge.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from kernelrl_core.errors import LookupFailed, UsageError, nearest, nearest_path
from kernelrl_core.interfaces.tasks import TaskSource
from kernelrl_core.recipe.schema import Use
from kernelrl_core.sources.plain_functions import as_task
from kernelrl_core.sources.task_source import parse_task_source
from kernelrl_core.types import Task

if TYPE_CHECKING:
    from kernelrl_core.plugins.registry import Registry

__all__ = ["find_task", "needs_source", "plain_sources", "read_task_file", "read_task_text", "source_for"]


def find_task(text: str, *, registry: Registry, source: TaskSource | None = None) -> Task:
    """The task of a file in KernelBench's format, or of a task id.

    Args:
        text: path of an existing file, whose stem becomes the task id; otherwise an id such as `starter/1/relu_double`.
        source: task source for the id. None: the first segment of the id names the source; its default options apply.

    Raises:
        UsageError: the file is not a task.
        LookupFailed: no task has this id; the message suggests the nearest id.
        MissingPrerequisite: the task source lacks a prerequisite.
    """
    path = Path(text)
    if path.is_file():
        return Task(id=path.stem, reference=read_task_file(path), name=path.stem)
    if path.is_dir():
        raise UsageError(f"{text}: a directory, not a task file")
    if path.suffix == ".py":
        raise UsageError(f"{text}: no such file{nearest_path(path)}", fix="kernelrl tasks list, or name a file")
    if source is None:
        source = _source_of(text, registry)
    known = {task.id: task for split in source.splits() for task in source.tasks(split)}
    if text in known:
        return known[text]
    close = nearest(text, known)
    hint = f"did you mean {close!r}?" if close else f"there are {len(known)}, such as {next(iter(known), 'none')!r}"
    raise LookupFailed(f"no file and no task {text!r}; {hint}", fix="kernelrl tasks list")


def source_for(text: str, tasks: Use, registry: Registry) -> TaskSource | None:
    """The task source `tasks` of a recipe, for `find_task`; None where it is not needed.

    Raises:
        UsageError, MissingPrerequisite: the source cannot be made.
    """
    return registry.make("tasks", tasks) if needs_source(text, tasks.use, registry) else None


def needs_source(text: str, name: str, registry: Registry) -> bool:
    """Whether the task source `name` of a recipe is needed to find a task. It is not if `text` is a file, or an id of
    another installed source."""
    named = text.partition("/")[0]
    installed = {component.name for component in registry.components("tasks")}
    return not (Path(text).is_file() or (named in installed and named != name.rpartition(":")[2]))


def plain_sources(registry: Registry) -> list[TaskSource]:
    """The installed task sources that need no options and have what they need."""
    found = []
    for component in registry.components("tasks"):
        # One that needs options fails in its own way.
        with contextlib.suppress(Exception):
            source: TaskSource = registry.make("tasks", Use(registry.label("tasks", component)))
            for split in source.splits():
                source.tasks(split)
            found.append(source)
    return found


def read_task_file(path: Path) -> str:
    """The text of a task file, checked to be a task; a plain function is made one (`as_task`).

    Raises:
        UsageError: the file cannot be read or is not a task.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file in UTF-8") from error
    return read_task_text(text, str(path))


def read_task_text(text: str, name: str) -> str:
    """The text of a task, checked to be one; a plain function is made one (`as_task`).

    Args:
        name: for the beginning of messages.

    Raises:
        UsageError: it is not a task.
    """
    text = as_task(text, name)
    parse_task_source(text, name)
    return text


def _source_of(text: str, registry: Registry) -> TaskSource:
    name = text.partition("/")[0]
    sources = [component.name for component in registry.components("tasks")]
    if name not in sources:
        if "/" in text:
            registry.find("tasks", name)  # raises; knows plugins that failed to load or are not installed
        hint = f"an id looks like starter/1/relu_double and begins with its source: {', '.join(sources)}"
        raise LookupFailed(f"no file and no task {text!r}; {hint}", fix="kernelrl tasks list")
    config = registry.config_class("tasks", name)
    lacking = [f.name for f in attrs.fields(config) if f.default is attrs.NOTHING]
    if lacking:
        message = f"task {text!r}: source {name!r} needs options ({', '.join(lacking)})"
        raise UsageError(message, fix="name a recipe that sets them: --recipe RECIPE", see="recipe")
    return registry.make("tasks", Use(name))
