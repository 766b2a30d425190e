"""The store of finished builds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelrl_build.store import BuildStore
from kernelrl_testing.waiting import takes


def test_a_build_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = BuildStore(tmp_path / "store", 1 << 30)
    file = tmp_path / "extension.so"
    file.write_bytes(b"binary")
    assert store.read("ab" * 32) is None
    written = store.write("ab" * 32, {"kind": "bound"}, file)
    found = store.read("ab" * 32)
    assert found == written
    assert Path(found["path"]).read_bytes() == b"binary"


def test_a_half_written_build_is_never_served(tmp_path: Path) -> None:
    store = BuildStore(tmp_path, 1 << 30)
    entry = tmp_path / "objects" / "cd" / ("cd" * 32)
    entry.mkdir(parents=True)
    assert store.read("cd" * 32) is None
    (entry / "result.json").write_text(json.dumps({"key": "cd" * 32, "file": "extension.so"}))
    assert store.read("cd" * 32) is None
    (entry / "result.json").write_text('{"key": "')
    assert store.read("cd" * 32) is None


def test_the_least_recently_used_build_is_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelrl_build.store._PRUNING_SHARE", 1.0)
    file = tmp_path / "extension.so"
    file.write_bytes(bytes(1000))
    store = BuildStore(tmp_path / "store", 3000)
    for index, key in enumerate(("aa" * 32, "bb" * 32, "cc" * 32)):
        store.write(key, {}, file)
        if index == 1:
            # So that the time of use is later even where a file system rounds it.
            takes(0.01)
            store.read("aa" * 32)
    assert store.read("bb" * 32) is None
    assert store.read("aa" * 32) is not None
