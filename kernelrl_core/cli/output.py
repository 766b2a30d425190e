"""The one printer of tables and JSON documents: results on stdout, whole also when they are piped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click

__all__ = ["print_json", "print_lines", "table"]

_WIDEST = 10_000
"""Characters of a line that are never folded: a table that is piped or narrow stays one line per row."""


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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in range(max(map(len, rows), default=0)):
        grid.add_column(no_wrap=True, overflow="ignore", justify="right" if column in right else "left")
    for row in rows:
        grid.add_row(*(Text("" if cell is None else " ".join(str(cell).splitlines())) for cell in row))
    console = Console(width=_WIDEST, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(grid)
    return [line.rstrip() for line in captured.get().splitlines()][: len(rows)]
