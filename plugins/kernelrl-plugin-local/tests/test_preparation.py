"""The first C++ build of a machine takes minutes; the evaluator reports its reason and its progress."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import attrs
import pytest

from kernelrl_core.testing.values import make_request
from kernelrl_plugin_local import evaluator
from kernelrl_plugin_local.config import LocalConfig

EXTENSION = "from torch.utils.cpp_extension import load_inline\nx = load_inline(name='x', cpp_sources=read('x.cpp'))\n"
CPP = {"language": "cpp", "device_only": False}


def reported(
    source: str, spec: dict[str, object], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> list[str]:
    """Messages of the first evaluation, and of a second one."""
    monkeypatch.setattr(evaluator, "_PROGRESS_S", 0.01)

    async def work() -> None:
        local = evaluator.LocalEvaluator(LocalConfig())
        request = attrs.evolve(make_request(), source=source)
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(local._report_first_build(request, spec), 0.2)
        await local.aclose()

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    return [record.getMessage() for record in caplog.records]


@pytest.fixture(autouse=True)
def no_headers(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path))


def test_the_first_build_reports_reason_and_progress(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, *progress = reported(EXTENSION, CPP, monkeypatch, caplog)
    assert first == "the first build precompiles PyTorch's headers, once: 1 to 3 minutes"
    assert progress
    assert all(line.startswith("still precompiling PyTorch's headers after ") for line in progress)


@pytest.mark.parametrize(
    ("source", "spec"),
    [("x = 1\n", CPP), (EXTENSION, {"language": "cuda", "device_only": True})],
    ids=["no extension", "device code only"],
)
def test_an_evaluation_that_precompiles_nothing_reports_nothing(
    source: str, spec: dict[str, object], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert reported(source, spec, monkeypatch, caplog) == []


def test_the_report_ends_when_the_headers_are_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = iter([[], [], ["types"], ["types"]])
    monkeypatch.setattr(evaluator, "precompiled_headers", lambda language: next(found))
    assert len(reported(EXTENSION, CPP, monkeypatch, caplog)) == 2
