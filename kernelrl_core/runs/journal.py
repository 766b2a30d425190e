"""Append-only JSONL files that survive `kill -9` and a full disk.

A row is written completely or not at all: after a failed write the file is truncated to its former size. A crash can
damage only the last line, which is moved to another file. Damage in another line is an error. A line is damaged if it
is no JSON object, or if a key is missing or of another type that the readers of this journal need (`row_shapes`).
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from kernelrl_core.errors import KernelRLError
from kernelrl_core.runs.row_shapes import SHAPES, fault
from kernelrl_core.storage import disk_error

__all__ = ["Journal", "JournalReader", "is_finite", "read_rows"]

_log = logging.getLogger(__name__)


class Journal:
    """A file opened for appending. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        """Open or create `path`, and move a damaged last line to `PATH.damaged`.

        Raises:
            StorageError: the file cannot be read or written.
        """
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._cut_damaged_end()
        except OSError as error:
            raise disk_error(path, error) from error

    def append(self, rows: Sequence[Mapping[str, Any]], *, wait: bool = True) -> None:
        """Append rows.

        Args:
            wait: wait until the rows are on disk (fsync). Without it they survive a crash of the process, but not of
                the machine.

        Raises:
            KernelRLError: the disk is full or fails; none of the rows is in the file.
            ValueError: a number is NaN or infinite.
        """
        if not rows:
            return
        data = memoryview(b"".join(map(_line, rows)))
        size = os.fstat(self._fd).st_size
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            if wait:
                os.fsync(self._fd)
        except OSError as error:
            os.ftruncate(self._fd, size)
            raise disk_error(self.path, error) from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _cut_damaged_end(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        last = data[data.rfind(b"\n", 0, max(whole - 1, 0)) + 1 : whole]
        # A power failure may leave a line of zero bytes that ends in a newline.
        if last and isinstance(_row(last, self.path), str):
            whole -= len(last)
        if whole == len(data):
            return
        aside = self.path.with_name(f"{self.path.name}.damaged")
        with aside.open("ab") as stream:
            stream.write(data[whole:] + b"\n")
        os.ftruncate(self._fd, whole)
        _log.warning(
            "%s: cut off a damaged last line of %d bytes, kept in %s", self.path, len(data) - whole, aside.name
        )


class JournalReader:
    """Reads a journal row by row, and later the rows that were appended since. Not thread-safe; keeps no file open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = self._line = 0
        self._file: tuple[int, int] | None = None

    def replaced(self) -> bool:
        """Whether the file that was read before is now another one, or shorter than the part that was read."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        return self._file is not None and ((found.st_dev, found.st_ino) != self._file or found.st_size < self._offset)

    def new_rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Iterate over the rows that were not read yet, each with the byte offset of its line.

        A damaged last line is skipped, because a run may be writing it; a later call reads it again. A missing file has
        no rows.

        Raises:
            KernelRLError: the file cannot be read, or a line before the last is damaged.
        """
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:
            return
        except OSError as error:
            raise disk_error(self.path, error) from error
        with stream:
            opened = os.fstat(stream.fileno())
            self._file = opened.st_dev, opened.st_ino
            stream.seek(self._offset)
            damage = ""
            for line in stream:
                if not line.endswith(b"\n"):
                    # The run appends to it, perhaps before the next line is read.
                    return
                if damage:
                    raise KernelRLError(
                        f"{self.path}:{self._line + 1}: {damage}",
                        fix="restore the file from a copy, or start a new run",
                        see="run-files",
                    )
                row = _row(line, self.path)
                if isinstance(row, str):
                    damage = row
                    continue
                offset = self._offset
                self._offset, self._line = offset + len(line), self._line + 1
                yield offset, row

    def rows_at(self, offsets: Sequence[int]) -> list[dict[str, Any]]:
        """The rows whose lines begin at these byte offsets.

        Raises:
            KernelRLError: the file cannot be read, or was replaced by another.
        """
        found = []
        try:
            with self.path.open("rb") as stream:
                for offset in offsets:
                    stream.seek(offset)
                    found.append(_row(stream.readline(), self.path))
        except OSError as error:
            raise disk_error(self.path, error) from error
        rows = [row for row in found if not isinstance(row, str)]
        if len(rows) < len(found):
            raise KernelRLError(f"{self.path} was changed while it was read", fix="repeat this", see="run-files")
        return rows


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of a journal; see `JournalReader.new_rows`."""
    for _, row in JournalReader(path).new_rows():
        yield row


def is_finite(value: Any) -> bool:
    """Whether every float in lists and dictionaries is finite. JSON has no NaN or infinity."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    if isinstance(value, list | tuple):
        try:
            # Thousands of log-probabilities: their sum is finite only if all are, and takes a hundredth of the time.
            return math.isfinite(sum(value))
        except (TypeError, OverflowError):
            return all(map(is_finite, value))
    return True


def _line(row: Mapping[str, Any]) -> bytes:
    if not is_finite(row):
        raise ValueError("a number is not finite")
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        # orjson rejects lone surrogates, which models write, and integers of more than 64 bits.
        return json.dumps(row, separators=(",", ":")).encode("ascii") + b"\n"


def _row(line: bytes, path: Path) -> dict[str, Any] | str:
    """The row of a line of a file; its damage, as text, if it is damaged."""
    no_object = "the line is not a JSON object"
    if not line.endswith(b"\n"):
        return no_object
    try:
        found = orjson.loads(line)
    except ValueError:
        # orjson rejects escaped lone surrogates and integers of more than 64 bits; `Journal` writes both.
        try:
            found = json.loads(line)
        except ValueError:
            return no_object
    if not isinstance(found, dict):
        return no_object
    return fault(found, SHAPES.get(path.stem, {})) or found
