"""Finished builds on disk, by the hash of everything that they depend on.

An entry is a directory that appears complete or not at all: it is filled under another name and then renamed. A process
that builds holds a lock of that entry. So equal builds that are requested at the same time, also by several processes,
are one build.
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.toolchain import Toolchain, ToolchainMissing, known_toolchain
from kernelrl_core.api.config import FileLock, replace_directory

__all__ = ["PATIENCE", "BuildStore", "kept_result", "keys", "scratch"]

PATIENCE = 4
"""Wall time that a build may take, in multiples of its limit. The limit itself is for CPU time, which does not depend
on the other work of a machine."""

_MAX_BYTES = 4 << 30
_RESULT = "result.json"
_PRUNING_SHARE = 1 / 32
"""Probability that the store adds up its size after a write of a small entry."""
_UNSEEN_SHARE = 1 / 256
"""Share of the maximum size that is written, on average, between two such checks."""
_LARGE_SHARE = 1 / 1024
"""Share of the maximum size beyond which an entry is large."""
_YOUNG_S = 5.0
"""Age until which an entry is removed last: the process that requested it has not opened its files yet."""
_ABANDONED_S = 86_400.0
"""Age of a scratch directory whose process must have been killed."""


@contextlib.contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """An empty directory inside `place`, which is created on first use; removed afterwards."""
    place.mkdir(parents=True, exist_ok=True)
    for abandoned in place.glob(".part-*"):
        with contextlib.suppress(OSError):
            if time.time() - abandoned.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(abandoned, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=".part-", dir=place))
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class BuildStore:
    """A directory of builds.

    Args:
        directory: created on first use.
        max_bytes: size of all entries. When they are larger, a tenth is removed: large entries first, and among equals
            the ones that were unused for the longest time. So a process that builds large extensions displaces large
            ones.
    """

    def __init__(self, directory: str | Path, max_bytes: int = _MAX_BYTES) -> None:
        self._directory = Path(directory)
        self._max_bytes = max_bytes

    def read(self, key: str) -> dict[str, Any] | None:
        """The result that is stored under `key`, with `path` if it has a file.

        None if there is no such result, or if its time `until` (seconds since the epoch) has passed.
        """
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
        if found.get("binder"):
            found["binder"] = str(self._directory / found["binder"])
        return found

    def write(self, key: str, result: dict[str, Any], file: Path | None) -> dict[str, Any]:
        """Store a result and its file; returns it as `read` would."""
        entry = self._entry(key)
        with scratch(entry.parent) as partial:
            kept = {**result, "key": key, "bytes": 0}
            if file is not None:
                shutil.copyfile(file, partial / file.name)
                kept |= {"file": file.name, "bytes": file.stat().st_size}
            (partial / _RESULT).write_text(json.dumps(kept))
            replace_directory(partial, entry, sync=False)
        written = _bytes(entry)
        if random.random() < max(_PRUNING_SHARE, written / (_UNSEEN_SHARE * self._max_bytes)):
            self._prune()
        return self.read(key) or kept

    def files(self, key: str) -> list[str]:
        """Files of a result, relative to the directory; empty if the result is gone.

        Copied into the store of another machine, they are the result there, if its toolchain is equal.
        """
        found = self.read(key)
        if found is None:
            return []
        paths = list(self._entry(key).iterdir())
        if found.get("binder"):
            paths.append(Path(found["binder"]))
        return [str(path.relative_to(self._directory)) for path in paths]

    def drop(self, key: str) -> None:
        """Remove the result that is stored under `key`."""
        shutil.rmtree(self._entry(key), ignore_errors=True)

    def lock(self, key: str) -> FileLock:
        """Hold the right to build `key`; others wait."""
        locks = self._directory / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        # 4096 files for all keys: to wait now and then for another key costs less than a file per key forever.
        return FileLock(locks / key[:3])

    def _entry(self, key: str) -> Path:
        return self._directory / "objects" / key[:2] / key

    def _prune(self) -> None:
        entries = []
        young_since = time.time() - _YOUNG_S
        for entry in (self._directory / "objects").glob("??/*"):
            with contextlib.suppress(OSError):
                size = _bytes(entry)
                used_at = entry.stat().st_mtime
                is_small = size < self._max_bytes * _LARGE_SHARE
                # Sorted in the order of removal.
                entries.append((used_at > young_since, is_small, used_at, size, entry))
        total = sum(size for *_, size, _ in entries)
        if total <= self._max_bytes:
            return
        for *_, size, entry in sorted(entries):
            if total <= self._max_bytes * 0.9:
                return
            shutil.rmtree(entry, ignore_errors=True)
            total -= size


def _bytes(entry: Path) -> int:
    """Size of the files of an entry; 0 if it is gone."""
    with contextlib.suppress(OSError):
        return sum(file.stat().st_size for file in entry.iterdir())
    return 0


def keys(order: Mapping[str, Any], request: InlineRequest, toolchain: Toolchain) -> tuple[str, str]:
    """Keys of the results of an order: of a result that holds under any limits, and of one that a limit decided.

    An order with a `scope` shares neither with another order.
    """
    found = f"{toolchain.id}{order.get('scope', '')}"
    return request.key(found), request.key(f"{found} {order['timeout_s']} {order['memory_mib']}")


def kept_result(order: Mapping[str, Any]) -> dict[str, Any] | None:
    """The stored result of an order; None if there is none. Imports no torch and creates no file."""
    request = InlineRequest.from_json(order["request"])
    try:
        toolchain = known_toolchain(request.language, Path(order["directory"]))
    except ToolchainMissing:
        return None
    if toolchain is None:
        return None
    store = BuildStore(order["directory"])
    for key in keys(order, request, toolchain):
        found = store.read(key)
        if found is not None:
            return {**found, "cached": True}
    return None
