"""What a build is told, kept and answered."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.types import EvaluationSettings
from kernelrl_judge.build.confined import Compilers, MachineBusy, OutOfTime, reached_limit
from kernelrl_judge.build.kept import store_of
from kernelrl_judge.build.request import InlineRequest
from kernelrl_judge.build.service import BuildService
from kernelrl_judge.build.store import BuildStore
from kernelrl_judge.protocol.frames import ProtocolError

_LISTS = ("cpp_sources", "device_sources", "cflags", "device_flags", "ldflags", "include_paths")


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
def test_a_forged_order_breaks_the_protocol(body: bytes, tmp_path: Path) -> None:
    with pytest.raises(ProtocolError):
        BuildService(tmp_path).answer(body, {"language": "cpp"}, EvaluationSettings(), cancelled=lambda: False)


_LOADED = """
from torch.utils.cpp_extension import load_inline
extension = load_inline(name="shown", cpp_sources="int f() { return 1; }", functions=["f"])
"""


@pytest.mark.parametrize(("text", "kept"), [("int f() { return 1; }", True), ("int f() { return 2; }", False)])
def test_what_a_source_does_not_show_is_built_each_time(
    text: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []

    def build(order: dict[str, Any], cancelled: object) -> dict[str, Any]:
        key = InlineRequest.from_json(order["request"]).key(order.get("scope", ""))
        keys.append(key)
        return store_of(order).write(key, {"error": "no"}, None)

    monkeypatch.setattr(BuildService, "_run", staticmethod(build))
    asked = {"name": "x", "functions": [["f", "f"]], **{name: [] for name in _LISTS}, "cpp_sources": [text]}
    for _ in range(2):
        answer, _ = BuildService(tmp_path).answer(
            json.dumps(asked).encode(),
            {"language": "cpp"},
            EvaluationSettings(),
            cancelled=lambda: False,
            source=_LOADED,
        )
        assert json.loads(answer)["error"] == "no"
    assert (keys[0] == keys[1]) is kept
    assert [path.name for path in tmp_path.glob("objects/*/*")] == (keys[:1] if kept else [])


def test_an_entry_is_forgotten_when_its_time_has_passed(tmp_path: Path) -> None:
    store = BuildStore(tmp_path, 1 << 20)
    store.write("ab", {"error": "x", "until": time.time() + 60.0}, None)
    assert store.read("ab") is not None
    store.write("ab", {"error": "x", "until": time.time() - 1.0}, None)
    assert store.read("ab") is None


def test_large_builds_do_not_wait_to_be_counted(tmp_path: Path) -> None:
    file = tmp_path / "extension.so"
    file.write_bytes(bytes(100_000))
    store = BuildStore(tmp_path / "store", 1_000_000)
    for number in range(40):
        store.write(f"{number:064x}", {}, file)
        # One look may come late by one of them.
        assert sum(path.stat().st_size for path in store_files(tmp_path / "store")) < 1_200_000


def test_large_builds_drive_out_none_but_large_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelrl_judge.build.store._YOUNG_S", 0.0)
    small, large = tmp_path / "small.so", tmp_path / "large.so"
    small.write_bytes(bytes(100))
    large.write_bytes(bytes(100_000))
    store = BuildStore(tmp_path / "store", 1_000_000)
    kept = [f"{number:064x}" for number in range(5)]
    for key in kept:
        store.write(key, {}, small)
    for number in range(5, 25):
        store.write(f"{number:064x}", {}, large)
    assert all(store.read(key) is not None for key in kept)


def store_files(directory: Path) -> list[Path]:
    return [path for path in directory.glob("objects/*/*/*") if path.is_file()]


def compilers(scratch: Path, seconds: float) -> Compilers:
    now = time.monotonic()
    return Compilers(
        readable=[],
        writable=str(scratch),
        memory_mib=512,
        deadline=now + seconds,
        latest=now + 2 * seconds,
        path="/usr/bin:/bin",
    )


def test_a_compiler_that_is_late_is_ended_and_what_it_said_is_kept(tmp_path: Path) -> None:
    started = time.monotonic()
    # On a busy machine it is not to blame.
    with pytest.raises((OutOfTime, MachineBusy), match="halfway"):
        compilers(tmp_path, 1.0).run(["sh", "-c", "echo halfway; sleep 60 & while :; do :; done"], tmp_path)
    assert time.monotonic() - started < 20.0


def test_a_compiler_that_waits_has_twice_the_time_and_is_not_to_blame(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(MachineBusy):
        compilers(tmp_path, 0.5).run(["sleep", "60"], tmp_path)
    assert time.monotonic() - started >= 0.9


def test_a_compiler_that_waited_may_end_late(tmp_path: Path) -> None:
    status, said, _ = compilers(tmp_path, 1.5).run(["sh", "-c", "sleep 2; echo done"], tmp_path)
    assert (status, said.strip()) == (0, "done")


def test_an_extended_build_continues_after_its_first_deadline(tmp_path: Path) -> None:
    build = compilers(tmp_path, 0.0)
    with pytest.raises(OutOfTime):
        build.run(["true"], tmp_path)
    build.extend(20.0)
    assert build.run(["true"], tmp_path)[0] == 0


def test_a_compiler_sees_no_processes(tmp_path: Path) -> None:
    _, seen, _ = compilers(tmp_path, 20.0).run(["ls", "/"], tmp_path)
    if "sys" in seen.split():
        pytest.skip("this machine does not allow namespaces")
    assert "proc" not in seen.split()


def test_limits_are_told_from_faults_of_the_compiler() -> None:
    assert "1024 MiB" in reached_limit("g++: internal compiler error: File size limit exceeded signal", 4)
    assert "4 MiB of memory" in reached_limit("virtual memory exhausted: Cannot allocate memory", 4)
    assert reached_limit("error: 'x' was not declared", 4) == ""
