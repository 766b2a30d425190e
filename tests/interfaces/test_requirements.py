"""Prerequisites of a component: those that this machine lacks, and their fixes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kernelrl_core.interfaces import requirements
from kernelrl_core.interfaces.requirements import Requires, missing_requirements


def lacking(**requires: object) -> list[tuple[str, str]]:
    return [(one.what, one.fix) for one in missing_requirements(Requires(**requires))]  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "gpu_vendors", frozenset)


@pytest.mark.parametrize(
    ("requires", "what", "fix"),
    [
        (
            {"modules": ("json", "nowhere_at_all.part")},
            "Python module nowhere_at_all.part",
            "install the package that provides nowhere_at_all",
        ),
        ({"executables": ("sh", "nowhere-at-all")}, "program nowhere-at-all", "install nowhere-at-all"),
        ({"environment": ("PATH", "NOWHERE_KEY")}, "environment variable NOWHERE_KEY", "export NOWHERE_KEY=…"),
        ({"gpu": "any"}, "a GPU", "run on a machine with a GPU and its driver"),
        ({"gpu": "amd"}, "an AMD GPU", "run on a machine with an AMD GPU and its driver"),
        ({"files": ("/", "/nowhere/at/all")}, "file /nowhere/at/all", "create /nowhere/at/all"),
        ({"absent": ("a large disk",)}, "a large disk", "provide a large disk"),
        ({"url": "http://127.0.0.1:1"}, "server at http://127.0.0.1:1", "start the server, or correct the address"),
        ({"url": "http://127.0.0.1:port"}, "server at http://127.0.0.1:port", "start the server"),
    ],
)
def test_a_missing_prerequisite_is_named_with_its_fix(requires: dict[str, object], what: str, fix: str) -> None:
    ((found, its_fix),) = lacking(**requires)
    assert found == what
    assert its_fix.startswith(fix)


def test_the_fix_of_the_plugin_replaces_the_general_one() -> None:
    assert lacking(modules=("nowhere_at_all",), fix="make setup") == [("Python module nowhere_at_all", "make setup")]


def test_a_server_that_accepts_connections_is_present() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert lacking(url=f"http://127.0.0.1:{server.getsockname()[1]}") == []


def test_a_gpu_of_the_vendor_is_present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "gpu_vendors", lambda: frozenset({"nvidia"}))
    assert lacking(gpu="nvidia") == lacking(gpu="any") == []
    assert [what for what, _ in lacking(gpu="amd")] == ["an AMD GPU"]


def test_vendors_are_those_with_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for devices, vendors in (
        (set(), set()),
        ({"/dev/nvidiactl"}, {"nvidia"}),
        ({"/dev/dxg"}, {"nvidia"}),
        ({"/dev/kfd", "/dev/nvidiactl"}, {"amd", "nvidia"}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "exists", lambda path, devices=devices: str(path) in devices)
            assert requirements.gpu_vendors() == vendors
