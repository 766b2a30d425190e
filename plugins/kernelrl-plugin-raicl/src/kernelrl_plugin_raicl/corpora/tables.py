"""Rows of a corpus, from the hub or from a local copy."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError

__all__ = ["SUFFIXES", "BrokenRow", "HubTable", "LocalTable", "Row", "Table"]

SUFFIXES = (".parquet", ".arrow", ".jsonl")
"""Endings of the files of a local copy."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_INSTALL = "pip install 'kernelrl-plugin-raicl[hub]'"


@attrs.frozen
class BrokenRow:
    """A row that cannot be read."""

    where: str
    detail: str


Row = Mapping[str, Any]


class Table(ABC):
    """Rows in a fixed order."""

    revision: str
    """Commit on the hub, or hash of the local files."""
    source: str
    """Name on the hub, or path."""

    @abstractmethod
    def rows(self) -> Iterator[Row | BrokenRow]:
        """Every row."""


class LocalTable(Table):
    """A file that ends in `.parquet`, `.arrow` or `.jsonl`, or a directory with such files.

    Args:
        pattern: files to read in a directory, such as `leaderboards*`; those of one ending only.

    Raises:
        UsageError: there is no such file, or the directory has none.
    """

    def __init__(self, path: Path, pattern: str = "*") -> None:
        self._files = _files(path, pattern)
        self.source = str(path)
        self.revision = _digest(self._files)

    def rows(self) -> Iterator[Row | BrokenRow]:
        """Every row of every file, in the order of the paths.

        Raises:
            UsageError: a file is damaged.
            MissingPrerequisite: pyarrow is missing.
        """
        for path in self._files:
            if path.suffix == ".jsonl":
                yield from _jsonl_rows(path)
            else:
                yield from _arrow_rows(path)


class HubTable(Table):
    """Splits of a data set on the Hugging Face hub.

    Args:
        name: such as `GPUMODE/KernelBook`.
        parts: pairs of configuration, or an empty string, and split.
        revision: commit; a branch is resolved to its commit, which then is the revision.
        local_copy: command that takes a local copy, for messages.

    Raises:
        MissingPrerequisite: the package `datasets` is missing.
        InfrastructureError: the hub cannot be reached.
    """

    def __init__(self, name: str, parts: Sequence[tuple[str, str]], revision: str, local_copy: str) -> None:
        self.source, self._parts, self._local_copy = name, parts, local_copy
        try:
            import datasets  # noqa: F401
        except ImportError as error:
            raise MissingPrerequisite(
                f"corpus {name}: the package datasets is missing", fix=_INSTALL, see="data-set"
            ) from error
        self.revision = revision if _COMMIT.fullmatch(revision) else self._commit(revision)

    def _commit(self, revision: str) -> str:
        from huggingface_hub import HfApi

        try:
            return str(HfApi().dataset_info(self.source, revision=revision).sha)
        except Exception as error:
            raise self._unreachable(revision, error) from error

    def rows(self) -> Iterator[Row]:
        import datasets

        for config, split in self._parts:
            try:
                table = datasets.load_dataset(self.source, config or None, split=split, revision=self.revision)
            except Exception as error:
                raise self._unreachable(self.revision, error) from error
            yield from table

    def _unreachable(self, revision: str, error: Exception) -> InfrastructureError:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        return InfrastructureError(
            f"data set {self.source} at {revision}: cannot be loaded from the hub: {first}",
            fix=self._local_copy,
            see="data-set",
        )


def _files(path: Path, pattern: str) -> list[Path]:
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise UsageError(f"{path}: expected a file that ends in {', '.join(SUFFIXES)}, or a directory")
        return [path]
    if not path.is_dir():
        raise UsageError(f"{path}: no such file or directory")
    for suffix in SUFFIXES:
        # datasets keeps results of its own computations in cache files.
        found = [item for item in sorted(path.rglob(f"{pattern}{suffix}")) if not item.name.startswith("cache-")]
        if found:
            return found
    raise UsageError(f"{path}: has no file {' or '.join(pattern + suffix for suffix in SUFFIXES)}")


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    return f"sha256:{digest.hexdigest()[:16]}"


def _jsonl_rows(path: Path) -> Iterator[Row | BrokenRow]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                yield BrokenRow(f"line {number}", f"not JSON: {error}")
                continue
            yield row if isinstance(row, dict) else BrokenRow(f"line {number}", "not an object")


def _arrow_rows(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPrerequisite(f"{path}: the package pyarrow is missing", fix=_INSTALL, see="data-set") from error
    try:
        if path.suffix == ".parquet":
            with pyarrow.parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=256):
                    yield from batch.to_pylist()
            return
        with pyarrow.memory_map(str(path)) as memory:
            try:
                batches: Any = pyarrow.ipc.open_stream(memory)
            except pyarrow.ArrowInvalid:
                reader = pyarrow.ipc.open_file(memory)
                batches = (reader.get_batch(at) for at in range(reader.num_record_batches))
            for batch in batches:
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(f"{path}: damaged, or not an {path.suffix[1:]} file: {first}") from error
