"""Builds that reached a limit: the mistake of the sources or of the machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelrl_build import job


def ordered(directory: Path) -> dict[str, Any]:
    return {
        "directory": str(directory),
        "request": {"language": "cpp"},
        "timeout_s": 20.0,
        "memory_mib": 512,
    }


@pytest.mark.parametrize(("compiler", "found"), [("/bin/true", "error"), ("/bin/false", "trouble")])
def test_a_build_that_waited_too_long_is_trouble_if_a_control_fails_as_well(
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
