"""The one printer of tables and JSON documents: results on stdout, whole also when they are piped."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any
from unicodedata import combining, east_asian_width

import click

__all__ = ["print_json", "print_lines", "table"]


def print_json(document: Any, *, indent: int | None = None) -> None:
    """One JSON document on a line of its own."""
    click.echo(json.dumps(document, indent=indent))


def print_lines(lines: Iterable[str]) -> None:
    """Lines as they are."""
    click.echo("\n".join(lines))


def table(rows: Sequence[Sequence[object]], *, right: Sequence[int] = ()) -> list[str]:
    """Rows in aligned columns, two spaces apart, without white space at the ends of lines.

    Args:
        rows: cells, shown by `str`; None is empty.
        right: columns that are aligned to the right.
    """
    # Not with rich: importing it takes a quarter of the time of `kernelrl plugins list`.
    cells = [["" if cell is None else " ".join(str(cell).splitlines()) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in itertools.zip_longest(*cells, fillvalue="")]
    lines = []
    for row in cells:
        blanks = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)]
        padded = (
            gap + cell if i in right else cell + gap for i, (cell, gap) in enumerate(zip(row, blanks, strict=True))
        )
        lines.append("  ".join(padded).rstrip())
    return lines


def _width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)
