"""Declaration of what the page of measurements shows of a result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs


@attrs.frozen
class Column:
    """A figure, or a column of a table."""

    title: str
    path: str | Callable[[Any], Any]
    """Keys of the JSON document, separated by `|`, or a function of it; in a table of its row. `@`: the key of the
    row."""
    unit: str = ""
    """Unit after the number; `%` for a share, `x` for a ratio."""


@attrs.frozen
class Figures:
    """A table with one figure per row."""

    figures: tuple[Column, ...]


@attrs.frozen
class Rows:
    """A table with one row per item of a part of the results."""

    source: Callable[[Sequence[Any]], Mapping[str, Any] | Iterable[Any]]
    """From the documents of all files to the items of the rows."""
    columns: tuple[Column, ...]


@attrs.frozen
class Measurement:
    """One section of the page."""

    title: str
    results: tuple[str, ...]
    """Files in `benchmarks/results`."""
    program: str
    """Name of the program in `benchmarks`, or a command."""
    measures: str
    """One sentence."""
    parts: tuple[Figures | Rows, ...]
    more: str = ""
    """Further sentences, with links to pages."""


def figures(*of: tuple[str, str | Callable[[Any], Any], str] | tuple[str, str | Callable[[Any], Any]]) -> Figures:
    return Figures(tuple(Column(*one) for one in of))


def rows(
    source: str | Callable[[Sequence[Any]], Any],
    *columns: tuple[str, str | Callable[[Any], Any], str] | tuple[str, str | Callable[[Any], Any]],
) -> Rows:
    def at(data: Sequence[Any]) -> Any:
        found = data[0]
        for key in str(source).split("|"):
            found = found[key]
        return found

    return Rows(source if callable(source) else at, tuple(Column(*one) for one in columns))


def only(*keys: str) -> Callable[[Sequence[Any]], dict[str, Any]]:
    """The items of a document under these keys."""
    return lambda data: {key: data[0][key] for key in keys}


def each(*names: str) -> Callable[[Sequence[Any]], dict[str, Any]]:
    """One row per file, under these names."""
    return lambda data: dict(zip(names, data, strict=True))
