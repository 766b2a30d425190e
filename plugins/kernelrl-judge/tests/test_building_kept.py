"""Answers of the build service that are already there."""

from __future__ import annotations

import shutil
import types
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.storage import pack_files, unpack_files
from kernelrl_judge.build import store
from kernelrl_judge.build.store import InlineRequest
from kernelrl_judge.build.toolchain import ToolchainMissing


def order_in(directory: Path, **changes: Any) -> dict[str, Any]:
    request = {
        "language": "cpp",
        "name": "f",
        "cpp_sources": ["int f() { return 1; }"],
        "device_sources": [],
        "functions": [["f", "f"]],
        "cflags": [],
        "device_flags": [],
        "ldflags": [],
        "include_paths": [],
        "arch": [],
        "device_only": False,
    }
    return {"directory": str(directory), "request": request, "timeout_s": 60.0, "memory_mib": 4096, **changes}


@pytest.fixture
def toolchain(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    known = types.SimpleNamespace(id="abc")
    monkeypatch.setattr(store, "known_toolchain", lambda language, directory: known)
    return known


def write(order: dict[str, Any], toolchain: Any, place: int, result: dict[str, Any]) -> None:
    request = InlineRequest.from_json(order["request"])
    store.BuildStore(order["directory"]).write(store.keys(order, request, toolchain)[place], result, None)


def test_what_was_never_built_is_not_there(tmp_path: Path, toolchain: Any) -> None:
    assert store.kept_answer(order_in(tmp_path)) is None


def test_what_was_built_is_there_whatever_the_limits(tmp_path: Path, toolchain: Any) -> None:
    write(order_in(tmp_path), toolchain, 0, {"error": "no such name"})
    found = store.kept_answer(order_in(tmp_path, timeout_s=1.0))
    assert found is not None
    assert (found["error"], found["cached"]) == ("no such name", True)


def test_what_a_limit_ended_is_there_under_the_same_limits_alone(tmp_path: Path, toolchain: Any) -> None:
    write(order_in(tmp_path), toolchain, 1, {"error": "took too long"})
    assert store.kept_answer(order_in(tmp_path)) is not None
    assert store.kept_answer(order_in(tmp_path, timeout_s=120.0)) is None


def test_another_toolchain_has_other_answers(tmp_path: Path, toolchain: Any) -> None:
    write(order_in(tmp_path), toolchain, 0, {"error": "no such name"})
    toolchain.id = "def"
    assert store.kept_answer(order_in(tmp_path)) is None


def test_without_a_compiler_nothing_is_answered_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(language: str, directory: Path) -> None:
        raise ToolchainMissing("the compiler g++ is not there", "install g++")

    monkeypatch.setattr(store, "known_toolchain", missing)
    assert store.kept_answer(order_in(tmp_path)) is None


def test_the_files_of_a_build_are_the_build_on_another_machine(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    built, binder = tmp_path / "built.so", there / "toolchains" / "binder.so"
    built.write_bytes(b"extension")
    binder.parent.mkdir(parents=True)
    binder.write_bytes(b"binder")
    kept = store.BuildStore(there)
    key = "ab12"
    kept.write(key, {"kind": "bound", "binder": "toolchains/binder.so"}, built)
    unpack_files(here, pack_files(there, kept.files(key)))
    shutil.rmtree(there)
    found = store.BuildStore(here).read(key)
    assert found is not None
    assert (Path(found["path"]).read_bytes(), Path(found["binder"]).read_bytes()) == (b"extension", b"binder")


def test_a_build_that_is_gone_has_no_files(tmp_path: Path) -> None:
    assert store.BuildStore(tmp_path).files("ab12") == []
