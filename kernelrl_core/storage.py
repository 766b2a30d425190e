"""Files on this machine: cache directory, atomic replacement, locks.

All functions raise OSError; `disk_error` converts it to an error for the user.
"""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import platformdirs

from kernelrl_core.errors import StorageError

__all__ = [
    "FileLock",
    "cache_directory",
    "disk_error",
    "is_locked",
    "new_directory",
    "pack_files",
    "remove_directory",
    "replace_directory",
    "sync_to_disk",
    "unpack_files",
    "write_atomically",
]


def cache_directory() -> Path:
    """Directory for files that are kept between runs: `KERNELRL_CACHE_DIR`, or the user's cache directory."""
    given = os.environ.get("KERNELRL_CACHE_DIR")
    return Path(given).absolute() if given else platformdirs.user_cache_path("kernelrl")


def disk_error(path: Path, error: OSError) -> StorageError:
    """The error for the user about a failed read or write."""
    return StorageError(f"{path}: {error.strerror or error}", fix="free disk space or permit access, then repeat this")


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or the entries of a directory, are on disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: str | bytes, *, mode: int = 0o644, sync: bool = True) -> None:
    """Replace a file atomically: readers, and the state after a crash, see the old or the new content.

    Devices and pipes, such as /dev/null and /dev/stdout, are written to instead: a rename would remove them.

    Args:
        content: text is written as UTF-8.
        mode: permissions before the umask.
        sync: wait until the content is on disk. Without it, a power failure may lose the content.

    Raises:
        OSError: the disk is full, broken or read-only; the old file is unchanged.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if path.parent == Path("/dev") or (path.exists() and not path.is_file() and not path.is_dir()):
        with open(path, "wb") as stream:
            stream.write(data)
        return
    temporary = _beside(path)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            if sync:
                os.fsync(descriptor)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_directory(finished: Path, final: Path, *, sync: bool = True) -> None:
    """Rename a finished directory to its final name and replace an existing one. Both must be in one file system.

    Under the final name there is always a complete directory or none.

    Args:
        sync: wait until all files, and then the name, are on disk.

    Raises:
        OSError: the disk is full, broken or read-only.
    """
    if sync:
        _sync_tree(finished)
    try:
        os.rename(finished, final)
    except OSError:
        if not final.is_dir():
            raise
        remove_directory(final)
        os.rename(finished, final)
    if sync:
        sync_to_disk(final.parent)


@contextmanager
def new_directory(final: Path) -> Iterator[Path]:
    """Create a directory with its content: complete, or not at all. Never replaces files.

    Yields an empty directory beside it, which gets the final name after the block.

    Raises:
        OSError: the directory exists, or the disk is full, broken or read-only.
    """
    growing = _beside(final)
    growing.mkdir()
    try:
        yield growing
        _sync_tree(growing)
        os.rename(growing, final)  # fails if there is a file, or a directory that is not empty
        sync_to_disk(final.parent)
    finally:
        shutil.rmtree(growing, ignore_errors=True)


def remove_directory(path: Path) -> None:
    """Remove a directory. It is renamed first, so an interrupted removal leaves no partial directory under its name.

    Raises:
        FileNotFoundError: the directory does not exist.
        OSError: it cannot be renamed. Files that cannot be removed remain under a hidden name.
    """
    removed = _beside(path)
    os.rename(path, removed)
    shutil.rmtree(removed, ignore_errors=True)


def pack_files(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Contents of files below a directory, in base64, by their paths relative to it."""
    return {name: base64.b64encode((directory / name).read_bytes()).decode() for name in names}


def unpack_files(directory: Path, packed: Mapping[str, str]) -> None:
    """Write what `pack_files` read, below another directory. Files that exist are kept.

    Raises:
        ValueError: a path leads out of the directory.
    """
    for name, content in packed.items():
        path = directory / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"{name!r} is not below a directory")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, base64.b64decode(content), mode=0o700, sync=False)


class FileLock:
    """Exclusive lock on a file. The file is created if it is missing, and is not removed.

    Held until `release`, the end of a `with` block or the end of the process. It excludes other processes and other
    `FileLock` objects of the same process.

    Raises:
        BlockingIOError: `wait` is false and the lock is held elsewhere.
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, *, wait: bool = True) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def is_locked(path: Path) -> bool:
    """True if a `FileLock` on the file is held. False if the file is missing or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # A shared lock, so that two concurrent tests do not mistake each other for a holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _sync_tree(directory: Path) -> None:
    for path in (*directory.rglob("*"), directory):
        if path.is_file() or path.is_dir():
            sync_to_disk(path)


def _beside(path: Path) -> Path:
    """An unused hidden name in the same directory."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")
