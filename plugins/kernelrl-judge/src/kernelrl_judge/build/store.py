"""Requests for builds, and finished builds on disk by the hash of everything that they depend on.

An entry is a directory that appears whole or not at all: it is filled under another name and renamed. Who builds holds
a lock of that entry, so that equal builds under way at the same time, in whatever process, are one build.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.api.config import FileLock, replace_directory
from kernelrl_judge.build.toolchain import Toolchain, ToolchainMissing, known_toolchain

__all__ = ["PATIENCE", "BuildStore", "InlineRequest", "kept_answer", "keys", "scratch"]

PATIENCE = 4
"""Wall time that a build may take, in multiples of its limit. The limit itself is for processor time, which does not
depend on the other work of a machine."""

_FORMAT = 7
"""Goes into every key: raise it when what a build gives changes."""


def _words(flags: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for flag in flags for word in flag.split())


@attrs.frozen
class InlineRequest:
    """One call of `load_inline`, and what the backend adds to it. Each flag is a word of its own."""

    language: Literal["cuda", "hip", "cpp"]
    name: str
    """Name of the extension, for messages alone."""
    cpp_sources: tuple[str, ...]
    device_sources: tuple[str, ...]
    """What the call names `cuda_sources`."""
    functions: tuple[tuple[str, str], ...]
    """Functions to bind, with their documentation; empty when the sources hold a Python module of their own."""
    cflags: tuple[str, ...] = attrs.field(converter=_words)
    device_flags: tuple[str, ...] = attrs.field(converter=_words)
    ldflags: tuple[str, ...] = attrs.field(converter=_words)
    include_paths: tuple[str, ...]
    arch: tuple[str, ...]
    """Architectures of the GPU, such as `9.0` or `gfx90a`; empty for the processor."""
    device_only: bool = False
    """Compile the device code and stop."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InlineRequest:
        fields = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
        fields["functions"] = tuple((name, text) for name, text in fields["functions"])
        return cls(**fields)

    def key(self, toolchain_id: str) -> str:
        """Hex SHA-256 of everything that the result depends on."""
        content = {**attrs.asdict(self), "name": "", "toolchain": toolchain_id, "format": _FORMAT}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


_MAX_BYTES = 4 << 30
_RESULT = "result.json"
_PRUNING_SHARE = 1 / 32
"""Share of the writes, however small, after which the size of everything is looked at."""
_UNSEEN_SHARE = 1 / 256
"""Share of what is kept that is written, in the mean, between two looks."""
_LARGE_SHARE = 1 / 1024
"""Share of what is kept beyond which an entry is large."""
_YOUNG_S = 5.0
"""How long whoever has an entry made may take to open it."""
_ABANDONED_S = 86_400.0


@contextlib.contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """An empty directory in another one, which is made on first use; removed afterwards."""
    place.mkdir(parents=True, exist_ok=True)
    for left in place.glob(".part-*"):
        # Of a process that was killed.
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(left, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix=".part-", dir=place))
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class BuildStore:
    """A directory of builds.

    Args:
        directory: made on first use.
        max_bytes: what is kept; when there is more a tenth goes, large entries first and what was not used for longest:
            who has large ones made drives out his own kind.
    """

    def __init__(self, directory: str | Path, max_bytes: int = _MAX_BYTES) -> None:
        self._directory = Path(directory)
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
        if found.get("binder"):
            found["binder"] = str(self._directory / found["binder"])
        return found

    def write(self, key: str, result: dict[str, Any], file: Path | None) -> dict[str, Any]:
        """Keep a result and its file; returns it as `read` would."""
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
        """Files of a result below the directory; empty if it is gone. Copied into another machine's store, they are the
        result there, if its toolchain is equal."""
        found = self.read(key)
        paths = [] if found is None else [*self._entry(key).iterdir(), *map(Path, filter(None, [found.get("binder")]))]
        return [str(path.relative_to(self._directory)) for path in paths]

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
                size, used = _bytes(entry), entry.stat().st_mtime
                entries.append((used > young, size < self._max_bytes * _LARGE_SHARE, used, size, entry))
        total = sum(size for *_, size, _ in entries)
        left = self._max_bytes * 0.9 if total > self._max_bytes else math.inf
        for *_, size, entry in sorted(entries):
            if total <= left:
                return
            shutil.rmtree(entry, ignore_errors=True)
            total -= size


def _bytes(entry: Path) -> int:
    """Size of the files of an entry; 0 if it is gone."""
    with contextlib.suppress(OSError):
        return sum(file.stat().st_size for file in entry.iterdir())
    return 0


def keys(order: Mapping[str, Any], request: InlineRequest, toolchain: Toolchain) -> tuple[str, str]:
    """Where an answer is kept: in general, and one that comes from a limit, which holds under the same limits.

    An order with a `scope` shares neither with any other.
    """
    found = f"{toolchain.id}{order.get('scope', '')}"
    return request.key(found), request.key(f"{found} {order['timeout_s']} {order['memory_mib']}")


def kept_answer(order: Mapping[str, Any]) -> dict[str, Any] | None:
    """The answer to an order where one is kept, otherwise None; torch is not asked and nothing is made."""
    request = InlineRequest.from_json(order["request"])
    try:
        toolchain = known_toolchain(request.language, Path(order["directory"]))
    except ToolchainMissing:
        return None
    if toolchain is None:
        return None
    store = BuildStore(order["directory"])
    found = next((found for key in keys(order, request, toolchain) if (found := store.read(key)) is not None), None)
    return {**found, "cached": True} if found is not None else None
