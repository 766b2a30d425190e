"""Requests to the build service, and builds that end without a result."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelrl_build import service
from kernelrl_build.errors import BadBuildRequest, BuildCrashed, BuildUnavailable
from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.service import BuildService
from kernelrl_build.store import BuildStore
from kernelrl_core.api.evaluators import CompiledKernel, EvaluationSettings, ExtensionBuild

CPP = {"language": "cpp"}
_LISTS = ("cpp_sources", "device_sources", "cflags", "device_flags", "ldflags", "include_paths")


def nothing() -> None:
    """Nobody cancels the build."""


def requested(text: str) -> bytes:
    request = {"name": "x", "functions": [["f", "f"]], **{name: [] for name in _LISTS}, "cpp_sources": [text]}
    return json.dumps(request).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 100_000,
        b"{}",
        b"7",
        json.dumps({"name": 1, "functions": [], **{key: [] for key in _LISTS}}).encode(),
        json.dumps({"name": "x", "functions": ["ab"], **{key: [] for key in _LISTS}}).encode(),
        json.dumps({"name": "x", "functions": [["a"]], **{key: [] for key in _LISTS}}).encode(),
        json.dumps({"name": "x", "functions": [], **dict.fromkeys(_LISTS, "text")}).encode(),
        json.dumps({"name": "x", "functions": [], **{key: [None] for key in _LISTS}}).encode(),
    ],
)
def test_a_malformed_request_is_refused(body: bytes, tmp_path: Path) -> None:
    with pytest.raises(BadBuildRequest):
        BuildService(tmp_path).build(body, CPP, EvaluationSettings(), check_cancelled=nothing)


_LOADED = """
from torch.utils.cpp_extension import load_inline
extension = load_inline(name="shown", cpp_sources="int f() { return 1; }", functions=["f"])
"""


@pytest.mark.parametrize(
    ("source", "text", "stored"),
    [(_LOADED, "int f() { return 1; }", True), (_LOADED, "int f() { return 2; }", False), (None, "int f();", True)],
    ids=["the source shows it", "the source does not show it", "a trusted caller"],
)
def test_a_build_that_a_source_does_not_show_is_repeated_and_not_stored(
    source: str | None, text: str, stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []

    def build(order: dict[str, Any], check_cancelled: object) -> dict[str, Any]:
        key = InlineRequest.from_json(order["request"]).key(order.get("scope", ""))
        keys.append(key)
        return BuildStore(order["directory"]).write(key, {"error": "no"}, None)

    monkeypatch.setattr(BuildService, "_run", staticmethod(build))
    for _ in range(2):
        reply = BuildService(tmp_path).build(
            requested(text), CPP, EvaluationSettings(), check_cancelled=nothing, source=source
        )
        assert json.loads(reply.body) == {"error": "no"}
    assert (keys[0] == keys[1]) is stored
    assert [path.name for path in tmp_path.glob("objects/*/*")] == (keys[:1] if stored else [])


def reply_for(result: dict[str, Any], directory: Path, monkeypatch: pytest.MonkeyPatch) -> service.BuildReply:
    monkeypatch.setattr(BuildService, "_run", staticmethod(lambda order, check_cancelled: result))
    return BuildService(directory).build(requested(""), CPP, EvaluationSettings(), check_cancelled=nothing)


def test_facts_of_a_build_are_returned_and_the_runner_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / name for name in ("extension.so", "binder.so")]
    for file in files:
        file.write_text(file.name)
    result = {
        "path": str(files[0]),
        "binder": str(files[1]),
        "kind": "bound",
        "bindings": [{"name": "f"}],
        "module_name": "m",
        "route": "bound",
        "reason": "",
        "cached": True,
        "seconds": 2.5,
        "cpu_seconds": 3.5,
        "stages": {"link": 0.5},
        "resources": [{"name": "k", "registers": 32, "stack_bytes": 8}],
    }
    reply = reply_for(result, tmp_path, monkeypatch)
    assert json.loads(reply.body) == {"kind": "bound", "bindings": [{"name": "f"}], "module_name": "m"}
    assert [os.read(descriptor, 20).decode() for descriptor in reply.descriptors] == ["extension.so", "binder.so"]
    # A runner of the same user could open a file of the store again, and change it.
    for descriptor in reply.descriptors:
        with pytest.raises(PermissionError):
            os.write(os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR), b"x")
        os.close(descriptor)
    assert [file.read_text() for file in files] == ["extension.so", "binder.so"]
    assert reply.build == ExtensionBuild("bound", "", True, 2.5, 3.5, {"link": 0.5})
    assert reply.kernels == (CompiledKernel("k", 32, stack_bytes=8),)
    assert reply.library_symbols == ()


@pytest.mark.parametrize(("limit", "final"), [({}, True), ({"until": 0.0}, False)], ids=["a mistake", "a limit"])
def test_a_failed_build_is_final_unless_a_limit_decided(
    limit: dict[str, Any], final: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = reply_for({"error": "no such name", "seconds": 1.5, **limit}, tmp_path, monkeypatch)
    assert json.loads(reply.body) == {"error": "no such name"}
    assert reply.descriptors == []
    assert reply.build == ExtensionBuild("failed", seconds=1.5, final=final)


def test_a_missing_compiler_has_a_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildUnavailable) as error:
        reply_for({"missing": "the compiler g++ is missing", "fix": "install g++"}, tmp_path, monkeypatch)
    assert error.value.args == ("the compiler g++ is missing", "install g++")


def ordered(directory: Path) -> dict[str, Any]:
    return {"directory": str(directory), "request": {"language": "cpp"}, "timeout_s": 20.0, "memory_mib": 512}


_DIES = "import json, os, sys; order = json.load(sys.stdin); {} or os.abort(); print('{{}}')"


def test_a_build_process_that_dies_is_a_mistake_in_the_sources_if_a_control_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_JOB", (sys.executable, "-c", _DIES.format("order.get('control')")))
    found = BuildService._run(ordered(tmp_path), nothing)
    assert found["error"]
    assert "until" in found


def test_a_build_process_that_dies_with_a_control_is_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_JOB", (sys.executable, "-c", _DIES.format("False")))
    with pytest.raises(BuildCrashed, match="for an empty source"):
        BuildService._run(ordered(tmp_path), nothing)


def test_a_long_order_reaches_a_build_process_that_reads_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = "import json, sys, time; time.sleep(0.2); print(json.dumps({'length': len(sys.stdin.read())}))"
    monkeypatch.setattr(service, "_JOB", (sys.executable, "-c", reads))
    assert BuildService._run({**ordered(tmp_path), "long": "x" * 1_000_000}, nothing)["length"] > 1_000_000


def test_a_cache_directory_that_cannot_be_written_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    order = ordered(tmp_path / "file" / "builds")
    order["request"] |= {"name": "x", "cpp_sources": ["int x;"], "functions": [], "arch": []}
    order["request"] |= {name: [] for name in ("device_sources", "cflags", "device_flags", "ldflags", "include_paths")}
    found = BuildService._run(order, nothing)
    assert f"{tmp_path}/file/builds cannot be written" in found["missing"]
    assert "KERNELRL_CACHE_DIR" in found["fix"]


class Cancelled(Exception):
    pass


def test_a_cancelled_build_raises_the_exception_of_the_caller_and_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    monkeypatch.setattr(service, "_JOB", (sys.executable, "-c", runs))

    def check_cancelled() -> None:
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text():
            raise Cancelled

    with pytest.raises(Cancelled):
        BuildService._run(ordered(tmp_path), check_cancelled)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
