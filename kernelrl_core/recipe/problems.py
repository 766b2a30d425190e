"""Mistakes in a recipe, each with its place and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kernelrl_core.errors import ExitCode, UsageError

__all__ = ["COMMAND_LINE", "Origin", "Problem", "RecipeError"]

COMMAND_LINE = "command line"


@attrs.frozen
class Origin:
    """Where a value was written."""

    source: str
    """Path of a file, or `command line`."""
    line: int | None = None
    """Line of the file, from 1."""

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


@attrs.frozen
class Problem:
    """One mistake."""

    origin: Origin
    path: str
    """Dotted path in the recipe; empty for the whole of it."""
    message: str
    hint: str = ""
    """What to write or do instead."""
    missing: bool = False
    """A plugin is missing or broken: the recipe itself may be right."""

    def __str__(self) -> str:
        text = ": ".join(part for part in (str(self.origin), self.path, self.message) if part)
        return f"{text}; {self.hint}" if self.hint else text


class RecipeError(UsageError):
    """A recipe cannot be used.

    Args:
        problems: every mistake that was found, in the order of the files and lines.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))
        if self.problems and all(problem.missing for problem in self.problems):
            self.exit_code = ExitCode.MISSING

    def __reduce__(self) -> tuple[object, ...]:
        return RecipeError, (self.problems,)
