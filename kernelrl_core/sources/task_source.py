"""Validation of a task's source by its syntax tree. Only the judge executes the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelrl_core.errors import UsageError
from kernelrl_sources.syntax import parse

__all__ = ["parse_task_source"]

_NEEDED = ("Model", "get_inputs", "get_init_inputs")
_MAX_BYTES = 1 << 20


def parse_task_source(text: str, where: str) -> None:
    """Check that a text is a task: it parses and defines `Model`, `get_inputs` and `get_init_inputs`.

    Args:
        where: file, or file and line, for the beginning of the message.

    Raises:
        UsageError: it is not a task; the message has the position and the missing names.
    """
    if len(text) > _MAX_BYTES:
        raise UsageError(f"{where}: not a task: longer than {_MAX_BYTES:,} characters")
    try:
        tree = parse(text)
    except SyntaxError as error:
        raise UsageError(f"{where}:{error.lineno or 1}: not Python: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise UsageError(f"{where}: nested too deeply to be parsed") from error
    except ValueError as error:
        raise UsageError(f"{where}:1: not Python: {error}") from error
    defined = set(_names(tree.body))
    if missing := [name for name in _NEEDED if name not in defined]:
        what = " or ".join(missing)
        raise UsageError(f"{where}:1: not a task: defines no {what} at module level")


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """Names that the statements of a module bind."""
    for statement in body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                yield name
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name for alias in aliases)
