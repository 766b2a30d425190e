"""Limits of compilers in time, memory and files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernelrl_build.compilers import Compilers, OutOfTime, reached_limit
from kernelrl_testing.waiting import DEADLINE_S


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


def test_a_compiler_that_is_late_is_ended_and_its_output_is_kept(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(OutOfTime, match="halfway"):
        compilers(tmp_path, 1.0).run(["sh", "-c", "echo halfway; sleep 10000 & while :; do :; done"], tmp_path)
    assert time.monotonic() - started < DEADLINE_S


def test_a_compiler_that_waits_has_the_longer_limit_of_wall_time(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(OutOfTime) as late:
        compilers(tmp_path, 0.5).run(["sleep", "60"], tmp_path)
    assert late.value.waited
    assert time.monotonic() - started >= 0.9


def test_a_compiler_that_waited_may_end_late(tmp_path: Path) -> None:
    status, output, _ = compilers(tmp_path, 1.5).run(["sh", "-c", "sleep 2; echo done"], tmp_path)
    assert (status, output.strip()) == (0, "done")


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
        status, output, _ = build.run(["head", "-c1", path], tmp_path / "build")
        assert status, output
        assert "No such file" in output


def test_limits_are_distinguished_from_faults_of_the_compiler() -> None:
    assert "1024 MiB" in reached_limit("g++: internal compiler error: File size limit exceeded signal", 4)
    assert "4 MiB of memory" in reached_limit("virtual memory exhausted: Cannot allocate memory", 4)
    assert reached_limit("error: 'x' was not declared", 4) == ""
