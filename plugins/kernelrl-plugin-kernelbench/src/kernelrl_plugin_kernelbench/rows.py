"""Reads the rows of a data set from a file or from the hub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError, nearest_path

__all__ = ["Row", "hub_rows", "read_rows"]

Row = tuple[str, Mapping[str, Any]]
"""(location for messages, column name -> value)."""


def read_rows(path: Path) -> list[Row]:
    """Rows of a `.jsonl`, `.json` or `.parquet` file.

    Raises:
        UsageError: the file is missing, damaged, or of another type.
        MissingPrerequisite: the file is Parquet, and pyarrow is not installed.
    """
    readers = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}
    if path.suffix not in readers:
        raise UsageError(f"dataset: {path}: expected a file that ends in {', '.join(readers)}")
    if not path.is_file():
        raise UsageError(f"dataset: {path}: no such file{nearest_path(path)}")
    try:
        return list(readers[path.suffix](path))
    except OSError as error:
        raise UsageError(f"dataset: {path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"dataset: {path}: not a text file in UTF-8") from error


def hub_rows(name: str, revision: str, subset: str | None, split: str) -> list[Row]:
    """Rows of a data set on the Hugging Face hub at a pinned revision.

    Raises:
        UsageError: the hub has no such data set, revision or split.
        MissingPrerequisite: the package `datasets` is not installed.
        InfrastructureError: the hub cannot be reached and the data set is not in the local cache.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingPrerequisite(
            f"data set {name}: reading from the hub needs the package datasets",
            fix="pip install 'kernelrl-plugin-kernelbench[hub]'",
            see="data-set",
        ) from error
    try:
        table = datasets.load_dataset(name, subset, split=split, revision=revision)
    except (FileNotFoundError, ValueError) as error:
        raise UsageError(f"data set {name} at {revision}, split {split}: {_first_line(error)}") from error
    except OSError as error:
        raise InfrastructureError(
            f"data set {name} at {revision}: the hub cannot be reached: {_first_line(error)}",
            fix="run once with network access to fill the cache, or use a local file",
            see="data-set",
        ) from error
    return [(f"{name}@{revision}:{split}:{number}", row) for number, row in enumerate(table, 1)]


def _jsonl(path: Path) -> Iterator[Row]:
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if line.strip():
            yield _row(f"{path}:{number}", _load(line, f"{path}:{number}"))


def _json(path: Path) -> Iterator[Row]:
    data = _load(path.read_text(encoding="utf-8-sig"), str(path))
    if not isinstance(data, list):
        raise UsageError(f"dataset: {path}: expected a list of rows, got {type(data).__name__}")
    for number, item in enumerate(data, 1):
        yield _row(f"{path}: row {number}", item)


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPrerequisite(
            f"dataset: {path}: reading parquet needs the package pyarrow",
            fix="pip install 'kernelrl-plugin-kernelbench[parquet]'",
            see="data-set",
        ) from error
    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise UsageError(f"dataset: {path}: not a parquet file: {_first_line(error)}") from error
    for number, item in enumerate(rows, 1):
        yield f"{path}: row {number}", item


def _load(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"dataset: {where}: not JSON: {error}") from error


def _row(where: str, item: Any) -> Row:
    if not isinstance(item, dict):
        raise UsageError(f"dataset: {where}: expected an object with columns, got {type(item).__name__}")
    return where, item


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
