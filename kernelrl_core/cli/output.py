"""Tables and JSON documents on stdout. Lines are never cut to the width of the terminal."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width

import click

from kernelrl_core.errors import UsageError

if TYPE_CHECKING:
    from kernelrl_core.planning.load import LoadedRecipe

__all__ = [
    "difference_table",
    "print_json",
    "print_lines",
    "require_output",
    "require_writable",
    "show_warnings",
    "table",
]


def require_output(path: Path, *, force: bool | None = None) -> None:
    """Check the file or directory of an option --output before the work begins.

    Args:
        force: whether an existing file may be overwritten. None: the command has no option --force.

    Raises:
        UsageError: the directory does not exist or cannot be written, or the file exists.
    """
    directory = path.absolute().parent
    if not directory.is_dir():
        raise UsageError(
            f"--output {path}: directory {directory} does not exist", fix=f"mkdir -p {directory}", see="output-file"
        )
    if path.exists() and not force:
        fix = "choose another path, or remove this one" if force is None else "choose another path, or add --force"
        raise UsageError(f"--output {path} already exists", fix=fix, see="output-file")
    require_writable(path)


def require_writable(path: Path, option: str = "--output") -> None:
    """Check that the file of an option can be written or created, also in directories that do not exist yet.

    Raises:
        UsageError: it cannot.
    """
    place = next(found for found in (path.absolute(), *path.absolute().parents) if found.exists())
    if not os.access(place, os.W_OK):
        raise UsageError(
            f"{option} {path}: {place} cannot be written",
            fix="choose another path, or permit access",
            see="output-file",
        )


def print_json(document: Any, *, indent: int | None = None) -> None:
    """Print one JSON document, on one line unless `indent` is given."""
    click.echo(json.dumps(document, indent=indent))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines unchanged."""
    click.echo("\n".join(lines))


def show_warnings(loaded: LoadedRecipe, *, trains: bool = False) -> None:
    """Print on stderr the files of a recipe, and a warning for each key of the user that has no effect.

    Args:
        trains: the recipe is used for training.
    """
    click.echo(f"recipe: {loaded.files()}", err=True)
    for warning in (*loaded.own_warnings(), *(loaded.training_warnings if trains else ())):
        click.echo(f"warning: {warning}", err=True)


def table(rows: Sequence[Sequence[object]], *, right: Sequence[int] = ()) -> list[str]:
    """Format rows as lines with aligned columns, two spaces apart, without trailing white space.

    Args:
        rows: cells, converted by `str`; None is empty.
        right: indices of right-aligned columns.
    """
    # Not with rich: its import takes a quarter of the time of `kernelrl plugins list`.
    cells = [[_one_line(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in itertools.zip_longest(*cells, fillvalue="")]
    lines = []
    for row in cells:
        blanks = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)]
        padded = []
        for column, (cell, gap) in enumerate(zip(row, blanks, strict=True)):
            padded.append(gap + cell if column in right else cell + gap)
        lines.append("  ".join(padded).rstrip())
    return lines


def _one_line(cell: object) -> str:
    return "" if cell is None else " ".join(str(cell).splitlines())


def difference_table(
    by_changed: Mapping[str, Iterable[Mapping[str, Any]]], base: str = "base", *, by_seed: bool = False
) -> list[str]:
    """A table of paired differences: values of both, difference, interval and smallest detectable difference.

    Args:
        by_changed: name of a result that is compared with `base` -> `PairedDifference` values as plain data. With
            several, the first column names them.
        base: name of the result that all are compared with.
    """
    several = len(by_changed) > 1
    last = ["by seed"] if by_seed else []
    names = ["changed"] if several else list(by_changed)
    head = [
        *(["compared"] if several else []),
        "metric",
        base,
        *names,
        "difference",
        "95 % interval",
        "detectable",
        *last,
    ]
    rows = [head]
    for changed, differences in by_changed.items():
        for row in differences:
            rows.append([*([changed] if several else []), *_difference_cells(row, by_seed)])
    return table(rows)


def _difference_cells(row: Mapping[str, Any], by_seed: bool) -> list[str]:
    if row["difference"] is None:
        reason = "run time was not measured" if row["metric"] in ("fast_1", "speedup") else "not measured"
        return [row["metric"], "–", "–", "–", reason, "", *([""] if by_seed else [])]
    interval = (
        "all tasks equal" if row["interval"] is None else " to ".join(f"{bound:+.3f}" for bound in row["interval"])
    )
    detectable = "–" if row["detectable"] is None else f"{row['detectable']:.3f}"
    means = [f"{row['base']:.3f}", f"{row['changed']:.3f}", f"{row['difference']:+.3f}"]
    seeds = ["  ".join(f"{each:+.3f}" for each in row["by_seed"])] if by_seed else []
    return [row["metric"], *means, interval, detectable, *seeds]


def _width(text: str) -> int:
    """Width of a text in terminal columns."""
    width = 0
    for char in text:
        if not combining(char):
            width += 2 if east_asian_width(char) in "WF" else 1
    return width
