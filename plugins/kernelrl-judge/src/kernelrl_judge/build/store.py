"""Finished builds on disk, by the hash of everything that they depend on.

An entry is a directory that appears whole or not at all: it is filled under another name and renamed. Who builds holds
a lock of that entry, so that equal builds under way at the same time, in whatever process, are one build.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from kernelrl_core.api.config import FileLock, replace_directory

__all__ = ["BuildStore"]

_RESULT = "result.json"
_PRUNING_SHARE = 1 / 32
"""Share of the writes, however small, after which the size of everything is looked at."""
_UNSEEN_SHARE = 1 / 256
"""Share of what is kept that is written, in the mean, between two looks."""
_LARGE_SHARE = 1 / 1024
"""Share of what is kept beyond which an entry is large."""
_YOUNG_S = 5.0
"""How long whoever has an entry made may take to open it."""


class BuildStore:
    """A directory of builds.

    Args:
        directory: made on first use.
        max_bytes: what is kept; when there is more a tenth goes, large entries first and what was not used for longest:
            who has large ones made drives out his own kind.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self._directory = directory
        self._max_bytes = max_bytes

    def read(self, key: str) -> dict[str, Any] | None:
        """The result kept under `key`, with `path` where it has a file; None where there is none, or where the time
        has passed that it has in `until` (seconds since the epoch)."""
        entry = self._entry(key)
        try:
            found: dict[str, Any] = json.loads((entry / _RESULT).read_text())
            if found["key"] != key or (found.get("file") and not (entry / found["file"]).is_file()):
                return None
            if found.get("until", math.inf) < time.time():
                return None
            os.utime(entry)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if found.get("file"):
            found["path"] = str(entry / found["file"])
        return found

    def write(self, key: str, result: dict[str, Any], file: Path | None) -> dict[str, Any]:
        """Keep a result and its file; returns it as `read` would."""
        entry = self._entry(key)
        entry.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".part-", dir=entry.parent))
        try:
            kept = {**result, "key": key, "bytes": 0}
            if file is not None:
                shutil.copyfile(file, partial / file.name)
                kept |= {"file": file.name, "bytes": file.stat().st_size}
            (partial / _RESULT).write_text(json.dumps(kept))
            replace_directory(partial, entry, sync=False)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        written = _bytes(entry)
        if random.random() < max(_PRUNING_SHARE, written / (_UNSEEN_SHARE * self._max_bytes)):
            self._prune()
        return self.read(key) or kept

    def drop(self, key: str) -> None:
        """Forget what is kept under `key`."""
        shutil.rmtree(self._entry(key), ignore_errors=True)

    def lock(self, key: str) -> FileLock:
        """Hold the right to build `key`; others wait."""
        locks = self._directory / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        # 4096 files for all keys: a rare wait for a neighbour costs less than files that nobody removes.
        return FileLock(locks / key[:3])

    def _entry(self, key: str) -> Path:
        return self._directory / "objects" / key[:2] / key

    def _prune(self) -> None:
        entries, young = [], time.time() - _YOUNG_S
        for entry in (self._directory / "objects").glob("??/*"):
            with contextlib.suppress(OSError):
                size = _bytes(entry)
                used = entry.stat().st_mtime
                order = used > young, size < self._max_bytes * _LARGE_SHARE, used
                entries.append((order, size, entry))
        total = sum(size for _, size, _ in entries)
        if total <= self._max_bytes:
            return
        entries.sort()
        for _, size, entry in entries:
            if total <= self._max_bytes * 0.9:
                return
            shutil.rmtree(entry, ignore_errors=True)
            total -= size


def _bytes(entry: Path) -> int:
    """Size of the files of an entry; 0 if it is gone."""
    with contextlib.suppress(OSError):
        return sum(file.stat().st_size for file in entry.iterdir())
    return 0
