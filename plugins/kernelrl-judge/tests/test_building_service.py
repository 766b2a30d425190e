"""What a build is told, kept and answered."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelrl_core.types import EvaluationSettings
from kernelrl_judge.build import job, service
from kernelrl_judge.build.confined import Compilers, OutOfTime, reached_limit
from kernelrl_judge.build.service import BuildCrashed, BuildService
from kernelrl_judge.build.store import BuildStore, InlineRequest
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
        return BuildStore(order["directory"]).write(key, {"error": "no"}, None)

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
    with pytest.raises(OutOfTime, match="halfway"):
        compilers(tmp_path, 1.0).run(["sh", "-c", "echo halfway; sleep 60 & while :; do :; done"], tmp_path)
    assert time.monotonic() - started < 20.0


def test_a_compiler_that_waits_has_the_longer_limit_of_wall_time(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(OutOfTime) as late:
        compilers(tmp_path, 0.5).run(["sleep", "60"], tmp_path)
    assert late.value.waited
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


def test_a_compiler_sees_no_file_that_is_not_of_its_toolchain(tmp_path: Path) -> None:
    outside = tmp_path / "key"
    outside.write_text("secret")
    (tmp_path / "build").mkdir()
    build = compilers(tmp_path / "build", 20.0)
    if "sys" in build.run(["ls", "/"], tmp_path / "build")[1].split():
        pytest.skip("this machine does not allow namespaces")
    for path in (str(outside), "/etc/passwd", "/dev/zero"):
        status, said, _ = build.run(["head", "-c1", path], tmp_path / "build")
        assert status, said
        assert "No such file" in said


def test_limits_are_told_from_faults_of_the_compiler() -> None:
    assert "1024 MiB" in reached_limit("g++: internal compiler error: File size limit exceeded signal", 4)
    assert "4 MiB of memory" in reached_limit("virtual memory exhausted: Cannot allocate memory", 4)
    assert reached_limit("error: 'x' was not declared", 4) == ""


def ordered(directory: Path) -> dict[str, Any]:
    return {
        "directory": str(directory),
        "request": {"language": "cpp"},
        "timeout_s": 20.0,
        "memory_mib": 512,
    }


@pytest.mark.parametrize(("compiler", "found"), [("/bin/true", "error"), ("/bin/false", "trouble")])
def test_a_build_that_waited_too_long_is_trouble_where_a_control_fails_as_well(
    compiler: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain = SimpleNamespace(cxx=compiler, language="cpp", directories=list, path=lambda: "/usr/bin:/bin")
    monkeypatch.setattr(job, "find_toolchain", lambda language, directory: toolchain)
    decided = job._decided(job._Doubtful("Compiling took too long.", "the machine is busy"), ordered(tmp_path))
    assert found in decided
    assert ("until" in decided) is (found == "error")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_full_disk_is_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain = SimpleNamespace(cxx="/bin/true", language="cpp", directories=list, path=lambda: "/usr/bin:/bin")
    monkeypatch.setattr(job, "find_toolchain", lambda language, directory: toolchain)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    decided = job._decided(job._disk_full(ordered(tmp_path)), ordered(tmp_path))
    assert f"no space is left in {tmp_path}" in decided["trouble"]


_DIES = "import json, os, sys; order = json.load(sys.stdin); {} or os.abort(); print('{{}}')"


def test_a_job_that_dies_is_the_candidates_mistake_where_a_control_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_JOB", (sys.executable, "-c", _DIES.format("order.get('control')")))
    found = BuildService._run(ordered(tmp_path), lambda: False)
    assert found["error"]
    assert "until" in found


def test_a_job_that_dies_with_a_control_is_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_JOB", (sys.executable, "-c", _DIES.format("False")))
    with pytest.raises(BuildCrashed, match="for an empty source"):
        BuildService._run(ordered(tmp_path), lambda: False)


def test_a_long_order_reaches_a_job_that_reads_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = "import json, sys, time; time.sleep(0.2); print(json.dumps({'length': len(sys.stdin.read())}))"
    monkeypatch.setattr(service, "_JOB", (sys.executable, "-c", reads))
    assert BuildService._run({**ordered(tmp_path), "long": "x" * 1_000_000}, lambda: False)["length"] > 1_000_000


def test_a_cache_directory_that_cannot_be_written_is_named_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    order = ordered(tmp_path / "file" / "builds")
    order["request"] |= {"name": "x", "cpp_sources": ["int x;"], "functions": [], "arch": []}
    order["request"] |= {name: [] for name in ("device_sources", "cflags", "device_flags", "ldflags", "include_paths")}
    found = BuildService._run(order, lambda: False)
    assert f"{tmp_path}/file/builds cannot be written" in found["missing"]
    assert "KERNELRL_CACHE_DIR" in found["fix"]
