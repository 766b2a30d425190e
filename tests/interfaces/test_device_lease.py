"""The directory of the lock files of device leases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelrl_core.api.policies import DeviceLease
from kernelrl_core.errors import MissingPrerequisite
from kernelrl_core.interfaces.device_lease import lock_directory


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the directory of lock files is to be."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"kernelrl-{os.getuid()}"


def test_the_directory_of_locks_is_made_for_its_user_alone(place: Path) -> None:
    assert lock_directory() == place
    assert place.stat().st_mode & 0o777 == 0o700
    assert lock_directory() == place


@pytest.mark.parametrize("kind", ["link", "file", "writable", "foreign"])
def test_a_directory_of_locks_that_others_may_control_is_refused_with_its_fix(
    place: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "link":
        (tmp_path / "other").mkdir()
        place.symlink_to(tmp_path / "other")
    elif kind == "file":
        place.touch()
    else:
        place.mkdir(mode=0o700)
    if kind == "writable":
        place.chmod(0o777)
    if kind == "foreign":
        other = os.getuid() + 1
        monkeypatch.setattr("os.getuid", lambda: other)
        place.rename(tmp_path / f"kernelrl-{os.getuid()}")
    said = {"link": "directory", "file": "directory", "writable": "other users", "foreign": "belongs to user"}[kind]
    with pytest.raises(MissingPrerequisite, match=said) as caught:
        lock_directory()
    assert "rm -rf" in (caught.value.fix or "")


def test_a_lock_file_is_never_a_link(place: Path, tmp_path: Path) -> None:
    lock_directory()
    (place / "x.turn").symlink_to(tmp_path / "somewhere")
    with pytest.raises(OSError, match="symbolic links"):
        DeviceLease("x")
    assert not (tmp_path / "somewhere").exists()
