"""What a build is told, kept and answered."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kernelrl_core.values import EvaluationSettings
from kernelrl_judge.building.confined import Compilers, OutOfTime, reached_limit
from kernelrl_judge.building.service import BuildService
from kernelrl_judge.building.store import BuildStore
from kernelrl_judge.protocol import ProtocolError

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


def test_an_entry_is_forgotten_when_its_time_has_passed(tmp_path: Path) -> None:
    store = BuildStore(tmp_path, 1 << 20)
    store.write("ab", {"error": "x", "until": time.time() + 60.0}, None)
    assert store.read("ab") is not None
    store.write("ab", {"error": "x", "until": time.time() - 1.0}, None)
    assert store.read("ab") is None


def test_a_compiler_that_is_late_is_ended_and_what_it_said_is_kept(tmp_path: Path) -> None:
    compilers = Compilers(
        readable=[], writable=str(tmp_path), memory_mib=512, deadline=time.monotonic() + 1.5, path="/usr/bin:/bin"
    )
    started = time.monotonic()
    with pytest.raises(OutOfTime, match="halfway"):
        compilers.run(["sh", "-c", "echo halfway; sleep 60 & sleep 60"], tmp_path)
    assert time.monotonic() - started < 20.0


def test_limits_are_told_from_faults_of_the_compiler() -> None:
    assert "1024 MiB" in reached_limit("g++: internal compiler error: File size limit exceeded signal", 4)
    assert "4 MiB of memory" in reached_limit("virtual memory exhausted: Cannot allocate memory", 4)
    assert reached_limit("error: 'x' was not declared", 4) == ""
