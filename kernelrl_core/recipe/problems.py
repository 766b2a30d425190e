"""Mistakes in a recipe, each with its origin and a hint."""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from kernelrl_core.errors import ExitCode, UsageError

__all__ = ["COMMAND_LINE", "Origin", "Problem", "RecipeError"]

COMMAND_LINE = "command line"


@attrs.frozen
class Origin:
    """File and line of a value, or the command line."""

    source: str
    """Path of a file, or `command line`."""
    line: int | None = None
    """Line of the file, from 1."""

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@attrs.frozen
class Problem:
    """One mistake in a recipe."""

    origin: Origin
    """File and line."""
    path: str
    """Dotted path in the recipe; empty for the whole recipe."""
    message: str
    """A sentence without place and hint."""
    hint: str = ""
    """The nearest correct name, or the command or change that fixes it."""
    missing: bool = False
    """A plugin is missing or broken; the recipe itself may be correct."""

    def __str__(self) -> str:
        text = ": ".join(part for part in (str(self.origin), self.path, self.message) if part)
        return f"{text}; {self.hint}" if self.hint else text


class RecipeError(UsageError):
    """A recipe cannot be used.

    Args:
        problems: all mistakes, ordered by file and line. If all are `missing`, the exit code is 3, else 2. If several
            distributions must be installed, `fix` is the one command that installs all of them.
    """

    see = "recipe"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        commands = (re.fullmatch(r"pip install (\S+)", problem.hint) for problem in self.problems)
        missing = sorted({command[1] for command in commands if command})
        fix = f"pip install {' '.join(missing)}" if len(missing) > 1 else ""
        super().__init__("\n".join(map(str, self.problems)), fix=fix)
        if self.problems and all(problem.missing for problem in self.problems):
            self.exit_code = ExitCode.MISSING

    def __reduce__(self) -> tuple[object, ...]:
        return RecipeError, (self.problems,)
