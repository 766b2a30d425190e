"""Processes and directories from which runners are forked."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from kernelrl_judge.peer.nursery import Scratch


def test_a_directory_whose_process_was_killed_is_removed_when_the_next_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    used = Scratch()
    abandoned = tmp_path / "kernelrl-zygote_abandoned"
    abandoned.mkdir()
    (abandoned / "candidate.py").touch()
    long_ago = time.time() - 3600
    for path in (abandoned, Path(used.path)):
        os.utime(path, (long_ago, long_ago))
    Scratch().close()
    assert not abandoned.exists()
    assert Path(used.path).exists()
    used.close()
    assert list(tmp_path.iterdir()) == []
