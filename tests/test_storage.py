"""The cache directory, atomic replacement and locks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelrl_core import storage
from kernelrl_core.errors import ExitCode, StorageError
from kernelrl_core.storage import (
    FileLock,
    cache_directory,
    disk_error,
    is_locked,
    new_directory,
    remove_directory,
    replace_directory,
    sync_to_disk,
    unpack_files,
    write_atomically,
)


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def directory_of(path: Path, text: str) -> Path:
    (path / "below").mkdir(parents=True)
    (path / "below" / "file").write_text(text)
    return path


def test_the_cache_directory_comes_from_the_environment_or_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELRL_CACHE_DIR", "here")
    assert cache_directory() == tmp_path / "here"
    monkeypatch.setenv("KERNELRL_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert cache_directory() == tmp_path / "user" / "kernelrl"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write_atomically(pipe, "text")
    reader.join()
    assert found == ["text"]
    assert pipe.is_fifo()


def test_a_disk_error_names_the_file_and_a_fix(tmp_path: Path) -> None:
    found = disk_error(tmp_path / "a", OSError(errno.ENOSPC, "No space left on device"))
    assert type(found) is StorageError
    assert str(found).startswith(f"{tmp_path / 'a'}: No space left on device\nfix: free disk space")
    assert found.exit_code == ExitCode.FAILED


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_is_replaced_atomically(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "a"
    write_atomically(path, "longer text ä\n", sync=sync)
    assert path.read_bytes() == "longer text ä\n".encode()
    write_atomically(path, b"\x00\r\n", sync=sync)
    assert path.read_bytes() == b"\x00\r\n"
    assert names(tmp_path) == ["a"]
    with pytest.raises(OSError, match="No such file"):
        write_atomically(tmp_path / "missing" / "a", "x", sync=sync)


def test_a_file_has_the_requested_mode_less_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "usual", "")
        write_atomically(tmp_path / "key", "", mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "usual").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(storage.os, failing, full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "a", "new")
    monkeypatch.undo()
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_concurrent_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "a"
    texts = [letter * 200_000 for letter in "abcd"]

    def write(text: str) -> None:
        for _ in range(20):
            write_atomically(path, text, sync=False)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert not path.exists() or path.read_text() in texts
    assert path.read_text() in texts
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("sync", [True, False])
def test_a_directory_replaces_another(tmp_path: Path, sync: bool) -> None:
    final = tmp_path / "final"
    replace_directory(directory_of(tmp_path / ".one", "1"), final, sync=sync)
    assert (final / "below" / "file").read_text() == "1"
    (final / "more").touch()
    replace_directory(directory_of(tmp_path / ".two", "2"), final, sync=sync)
    assert (final / "below" / "file").read_text() == "2"
    assert names(final) == ["below"]
    assert names(tmp_path) == ["final"]


def test_files_are_synced_before_the_directory_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    final, synced = tmp_path / "final", []
    monkeypatch.setattr(storage, "sync_to_disk", lambda path: synced.append((path.name, final.exists())))
    replace_directory(directory_of(tmp_path / ".new", "1"), final)
    assert sorted(synced[:-1]) == [(".new", False), ("below", False), ("file", False)]
    assert synced[-1] == (tmp_path.name, True)


def test_a_failed_replacement_keeps_the_old_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    final = directory_of(tmp_path / "final", "old")
    finished = directory_of(tmp_path / ".new", "new")
    monkeypatch.setattr(storage.os, "rename", full_disk)
    with pytest.raises(OSError, match="No space left"):
        replace_directory(finished, final)
    assert (final / "below" / "file").read_text() == "old"
    with pytest.raises(OSError, match="No space left"):
        replace_directory(finished, tmp_path / "other")


def test_an_interrupted_removal_leaves_no_partial_directory_under_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = directory_of(tmp_path / "doomed", "1")
    monkeypatch.setattr(storage.shutil, "rmtree", lambda *_, **__: None)
    remove_directory(doomed)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".doomed.")
    monkeypatch.undo()
    remove_directory(left)
    assert not names(tmp_path)
    with pytest.raises(FileNotFoundError):
        remove_directory(doomed)


def test_a_lock_has_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with FileLock(path) as lock:
        assert is_locked(path)
        with pytest.raises(BlockingIOError):
            FileLock(path, wait=False)
        assert is_locked(path)
        lock.release()
        assert not is_locked(path)
    again = FileLock(path, wait=False)
    again.release()
    again.release()
    assert names(tmp_path) == ["lock"]
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "missing" / "lock")


def test_a_waiting_lock_is_acquired_after_the_release(tmp_path: Path) -> None:
    order: list[str] = []
    first = FileLock(tmp_path / "lock")

    def wait() -> None:
        with FileLock(tmp_path / "lock"):
            order.append("second")

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.1)
    order.append("first")
    first.release()
    waiting.join(10)
    assert order == ["first", "second"]


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys; from pathlib import Path; from kernelrl_core.storage import FileLock\n"
        "lock = FileLock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert is_locked(path)
        holder.kill()
    assert not is_locked(path)


def test_a_directory_can_be_synced(tmp_path: Path) -> None:
    sync_to_disk(tmp_path)
    with pytest.raises(FileNotFoundError):
        sync_to_disk(tmp_path / "missing")


@pytest.mark.parametrize("name", ["../outside", "/outside", "inside/../../outside"])
def test_files_are_not_unpacked_outside_their_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="below"):
        unpack_files(tmp_path / "d", {name: ""})


def make_new(final: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
    with new_directory(final) as growing:
        (growing / "file").write_text("a")
        assert not final.exists()
        meanwhile()


def test_a_new_directory_is_complete_or_absent(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        make_new(tmp_path / "new", full_disk)
    assert names(tmp_path) == []
    make_new(tmp_path / "new")
    assert names(tmp_path) == ["new"]
    assert (tmp_path / "new/file").read_text() == "a"


def test_a_new_directory_replaces_none_that_appears_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not empty"):
        make_new(tmp_path / "new", lambda: directory_of(tmp_path / "new", "theirs"))
    assert (tmp_path / "new/below/file").read_text() == "theirs"
    assert names(tmp_path) == ["new"]
