"""The evaluation cache: evaluations on disk by request key. Concurrent runs may share it; it can be deleted."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from pathlib import Path

import cattrs

from kernelrl_core.storage import write_atomically
from kernelrl_core.types import Evaluation
from kernelrl_core.types.serialization import from_json, to_json

__all__ = ["EvaluationCache"]

logger = logging.getLogger(__name__)


class EvaluationCache:
    """One JSON file per evaluation, written atomically.

    Args:
        directory: directory of the entries; created by the first write.
        max_entries: above this number, the least recently used tenth is removed.

    An unreadable entry is a cache miss. After a failed write, the cache logs a warning once and writes no more.
    """

    def __init__(self, directory: Path, max_entries: int) -> None:
        self._directory = directory
        self._max_entries = max_entries
        self._entries: int | None = None
        self._writable = True

    def read(self, key: str) -> Evaluation | None:
        """The evaluation stored under `key`, or None."""
        path = self._path(key)
        try:
            entry = json.loads(path.read_bytes())
            if entry["key"] != key:
                raise ValueError("the entry belongs to another request")
            evaluation = from_json(Evaluation, entry["evaluation"])
            os.utime(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError, cattrs.BaseValidationError) as error:
            logger.warning("cached evaluation %s cannot be read; evaluating again: %s", path, error)
            return None
        return evaluation

    def write(self, key: str, evaluation: Evaluation) -> None:
        """Store an evaluation; a failure is logged, not raised."""
        if not self._writable:
            return
        try:
            content = json.dumps({"key": key, "evaluation": to_json(evaluation)}, allow_nan=False).encode("ascii")
            self._directory.mkdir(parents=True, exist_ok=True)
            if self._entries is None:
                self._entries = sum(1 for _ in self._directory.glob("*.json"))
            write_atomically(self._path(key), content, mode=0o600, sync=False)
        except ValueError as error:
            logger.warning("an evaluation cannot be cached: %s", error)
        except OSError as error:
            self._writable = False
            logger.warning("evaluation cache %s is not writable; caching is disabled: %s", self._directory, error)
        else:
            self._entries += 1
            if self._entries > self._max_entries:
                self._prune()

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}.json"

    def _prune(self) -> None:
        used = []
        for path in self._directory.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                used.append((path.stat().st_mtime_ns, path))
        used.sort()
        surplus = len(used) - (self._max_entries - self._max_entries // 10)
        for _, path in used[: max(0, surplus)]:
            path.unlink(missing_ok=True)
        self._entries = len(used) - max(0, surplus)
