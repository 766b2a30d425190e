"""Extensions that are built before a judge has the candidate. The first build of a machine takes minutes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelrl_build.service import BuildService, target_archs
from kernelrl_judge.client import builds

EXTENSION = "from torch.utils.cpp_extension import load_inline\nx = load_inline(name='x', cpp_sources=read('x.cpp'))\n"
CPP = {"language": "cpp", "device_only": False}
FIRST = "the first build precompiles PyTorch's headers, once: 1 to 3 minutes"


def reported(
    caplog: pytest.LogCaptureFixture, source: str = EXTENSION, spec: Mapping[str, Any] | None = CPP
) -> list[str]:
    """Messages during two evaluations."""
    request: Any = SimpleNamespace(source=source, settings=None, backend="", backend_options={})
    runner = SimpleNamespace(mode=lambda options, has_gpu: "", toolchain=lambda options, mode: spec)

    async def work() -> None:
        compiling = builds.Builds(1)
        await asyncio.gather(compiling.compile(request, False), compiling.compile(request, False))

    with caplog.at_level(logging.WARNING), pytest.MonkeyPatch.context() as patch:
        patch.setattr(builds, "backend_runner", lambda backend: ("", runner))
        asyncio.run(work())
    return [record.getMessage() for record in caplog.records]


def test_the_first_build_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path))
    assert reported(caplog) == [FIRST]


@pytest.mark.parametrize(
    ("source", "spec"),
    [("x = 1\n", CPP), (EXTENSION, {"language": "cuda", "device_only": True}), (EXTENSION, None)],
    ids=["no extension", "device code only", "no toolchain"],
)
def test_an_evaluation_that_precompiles_nothing_reports_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    spec: Mapping[str, Any] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path))
    assert reported(caplog, source, spec) == []


def test_existing_headers_are_not_reported(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("kernelrl_build.survey.precompiled_headers", lambda language: ["types"])
    assert reported(caplog) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"language": "cuda", "arch": []}, ["8.9"]),
        ({"language": "cuda", "arch": ["9.0a"]}, ["9.0a"]),
        ({"language": "cpp", "arch": []}, []),
    ],
    ids=["of the GPU", "of the recipe", "none"],
)
def test_a_build_for_another_machine_names_the_architecture_of_its_gpu(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any], expected: list[str]
) -> None:
    source = "from torch.utils.cpp_extension import load_inline\nload_inline(name='x', cpp_sources='', functions=['f'])"
    request: Any = SimpleNamespace(source=source, settings=None, backend="", backend_options={})
    runner = SimpleNamespace(
        mode=lambda options, has_gpu: "", toolchain=lambda options, mode: {"device_only": True, **spec}
    )
    monkeypatch.setattr(builds, "backend_runner", lambda backend: ("", runner))
    requested: list[list[str]] = []

    async def prebuild(self: object, call: object, spec: Mapping[str, Any], settings: object) -> str:
        requested.append(target_archs(spec))
        return "key"

    monkeypatch.setattr(BuildService, "prebuild", prebuild)
    assert asyncio.run(builds.Builds(1).compile(request, True, "8.9")) == ["key"]
    assert requested == [expected]
