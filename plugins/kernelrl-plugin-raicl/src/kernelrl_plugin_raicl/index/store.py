"""Records of an index: their texts on disk, and a small table in memory.

`records.jsonl` has one record per line, in the order of the corpora. `rows.npy` has one row per record, in the order of
the ids, so that ties that are broken by row are broken by id.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from kernelrl_plugin_raicl.index.manifest import unusable
from kernelrl_plugin_raicl.record import Record

__all__ = ["RECORDS", "Rows", "Store", "record_line", "write_rows"]

Rows: TypeAlias = npt.NDArray[np.int64]

RECORDS = "records.jsonl"
_TABLE = "rows.npy"
_DTYPE = np.dtype(
    [
        ("offset", "<i8"),
        ("bytes", "<i4"),
        ("backend", "<i2"),  # index into the manifest's `backends`
        ("reference", "<i4"),  # equal for equal references; numbered in the order of the rows
        ("speedup", "<f4"),  # NaN: unknown
        ("tokens", "<i4"),  # estimate: bytes of reference and kernel / 3
    ]
)


def record_line(record: Record) -> bytes:
    """A record as one line of `records.jsonl`."""
    return json.dumps(attrs.asdict(record), ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def write_rows(directory: Path) -> dict[str, Any]:
    """Write `rows.npy` for the records in `records.jsonl`. A record with an id or texts seen before gets no row.

    Returns:
        Counts for the manifest: `records`, `duplicates`, `references`, `backends`, `origins`, `licences`.
    """
    found: dict[str, tuple[int, int, str, bytes, float, int]] = {}
    texts: set[bytes] = set()
    origins: dict[str, int] = {}
    licences: dict[str, int] = {}
    duplicates = offset = 0
    with (directory / RECORDS).open("rb") as stream:
        for line in stream:
            record = _record(line)
            reference, kernel = _encoded(record.reference), _encoded(record.kernel)
            text = hashlib.sha256(b"\0".join((record.backend.encode(), reference, kernel))).digest()
            if record.id in found or text in texts:
                duplicates += 1
            else:
                texts.add(text)
                size = -(-(len(reference) + len(kernel)) // 3)
                speedup = float("nan") if record.speedup is None else record.speedup
                digest = hashlib.sha256(reference).digest()
                found[record.id] = (offset, len(line), record.backend, digest, speedup, size)
                origins[record.origin] = origins.get(record.origin, 0) + 1
                licences[record.licence or "unknown"] = licences.get(record.licence or "unknown", 0) + 1
            offset += len(line)
    backends = sorted({entry[2] for entry in found.values()})
    numbers: dict[bytes, int] = {}
    table = np.empty(len(found), _DTYPE)
    for row, identity in enumerate(sorted(found)):
        start, length, backend, digest, speedup, size = found[identity]
        number = numbers.setdefault(digest, len(numbers))
        table[row] = (start, length, backends.index(backend), number, speedup, size)
    np.save(directory / _TABLE, table, allow_pickle=False)
    counts = np.bincount(table["backend"], minlength=len(backends))
    return {
        "records": len(table),
        "duplicates": duplicates,
        "references": len(numbers),
        "backends": {name: int(count) for name, count in zip(backends, counts, strict=True)},
        "origins": dict(sorted(origins.items())),
        "licences": dict(sorted(licences.items())),
    }


class Store:
    """Read access to the records of an index. Safe to use in several threads.

    Args:
        backends: names of the backends, in the order of the manifest.

    Raises:
        UsageError: the table is damaged.
    """

    def __init__(self, directory: Path, backends: Sequence[str]) -> None:
        try:
            table = np.load(directory / _TABLE, allow_pickle=False)
            self._file = os.open(directory / RECORDS, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise unusable(directory, f"{_TABLE} or {RECORDS} cannot be read: {error}") from None
        if table.dtype != _DTYPE or (len(table) and int(table["backend"].max()) >= len(backends)):
            raise unusable(directory, f"{_TABLE} has other columns than this release writes")
        self.backends = tuple(backends)
        self.backend = np.ascontiguousarray(table["backend"])
        """[n] index into `backends`."""
        self.reference = np.ascontiguousarray(table["reference"])
        """[n] number of the reference; equal references have equal numbers."""
        self.speedup = np.ascontiguousarray(table["speedup"])
        """[n] NaN where the speedup is unknown."""
        self.tokens = np.ascontiguousarray(table["tokens"])
        """[n] estimated tokens of reference and kernel: bytes / 3."""
        self._offset, self._bytes = np.ascontiguousarray(table["offset"]), np.ascontiguousarray(table["bytes"])
        self._by_reference = np.argsort(self.reference, kind="stable")
        self._starts = np.searchsorted(self.reference[self._by_reference], np.arange(self.n_references + 1))

    def __len__(self) -> int:
        return len(self.backend)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    @property
    def n_references(self) -> int:
        """Number of different references."""
        return int(self.reference.max()) + 1 if len(self.reference) else 0

    def rows_of(self, backend: str) -> Rows:
        """Rows of a backend, ascending; empty if there are none."""
        if backend not in self.backends:
            return np.empty(0, np.int64)
        return np.flatnonzero(self.backend == self.backends.index(backend)).astype(np.int64)

    def rows_with(self, reference: int) -> Rows:
        """Rows with a reference, ascending."""
        return self._by_reference[self._starts[reference] : self._starts[reference + 1]].astype(np.int64)

    def record(self, row: int) -> Record:
        """The record of a row, read from disk."""
        return _record(os.pread(self._file, int(self._bytes[row]), int(self._offset[row])))

    def records(self) -> Iterator[Record]:
        """All records, in the order of their ids."""
        return map(self.record, range(len(self)))

    def references(self) -> Iterator[str]:
        """The different references, in the order of their numbers."""
        return (self.record(int(self.rows_with(number)[0])).reference for number in range(self.n_references))

    def row_of(self, identity: str) -> int | None:
        """Row of an id; None if there is none."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.record(middle).id < identity:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self.record(low).id == identity else None


def _record(line: bytes) -> Record:
    return Record(**json.loads(line.decode("utf-8", "surrogatepass")))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
