"""The rows of a benchmark, in a file as they come: a call that is cut off loses none, and the next one continues."""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = ["Row", "Rows"]

Row = dict[str, Any]

_WRITE_EVERY_S = 1.0
_INTERRUPTED = 130


class Rows:
    """Rows by name, in a JSON document with `provenance`, the keys of a summary, and `rows`.

    Use as a context manager. SIGINT and SIGTERM end the block; its rows are then in the document, the summary is
    printed, and the exit code is 130.

    Args:
        path: the document. Rows in it are kept if `origin` has not changed.
        origin: properties that all rows of a result share, such as those of `provenance.machine`.
        summary: of all rows; computed for each version of the document.
        budget_s: time from now after which no row is to be started.
    """

    def __init__(
        self,
        path: Path,
        origin: Mapping[str, Any],
        summary: Callable[[dict[str, Row]], Row] = lambda rows: {},
        budget_s: float = float("inf"),
    ) -> None:
        self._path = path
        self._origin = dict(origin)
        self._summary = summary
        self._ends = time.monotonic() + budget_s
        self._written = 0.0
        self.rows: dict[str, Row] = {}
        if not path.exists():
            return
        before = json.loads(path.read_text(encoding="utf-8"))
        known = before.get("provenance", {})
        changed = sorted(name for name in {*known, *origin} if known.get(name) != self._origin.get(name))
        if not changed:
            self.rows = before["rows"]
        else:
            print(f"{path}: new rows only, because of another {', '.join(changed)}", file=sys.stderr)

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    @property
    def left_s(self) -> float:
        """Remaining time; negative after the budget."""
        return self._ends - time.monotonic()

    def missing(self, names: Iterable[str]) -> list[str]:
        """The names that have no row."""
        return [name for name in names if name not in self.rows]

    def add(self, name: str, row: Row) -> None:
        """Add or replace a row. The document is at most a second behind."""
        self.rows[name] = row
        if time.monotonic() - self._written > _WRITE_EVERY_S:
            self._write()

    def summary(self) -> Row:
        return self._summary(self.rows)

    def _write(self) -> None:
        document = {
            "provenance": self._origin,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
            **self.summary(),
            "rows": self.rows,
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_name(f".{self._path.name}")
        beside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        os.replace(beside, self._path)
        self._written = time.monotonic()

    def __enter__(self) -> Rows:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write()
        print(json.dumps(self.summary(), indent=1), flush=True)
        if isinstance(error, KeyboardInterrupt):
            print(f"interrupted: {self._path} has {len(self.rows)} rows; the same command continues", file=sys.stderr)
            sys.exit(_INTERRUPTED)
