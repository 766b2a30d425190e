"""The first C++ build of a machine takes minutes; the evaluator reports its reason and its progress."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kernelrl_judge.client import first_build
from kernelrl_judge.client.first_build import FirstBuild

EXTENSION = "from torch.utils.cpp_extension import load_inline\nx = load_inline(name='x', cpp_sources=read('x.cpp'))\n"
CPP = {"language": "cpp", "device_only": False}
FIRST = "the first build precompiles PyTorch's headers, once: 1 to 3 minutes"


@pytest.fixture(autouse=True)
def no_headers(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(first_build, "_PROGRESS_INTERVAL_S", 0.001)


def reported(caplog: pytest.LogCaptureFixture, messages: int, source: str = EXTENSION, spec=CPP) -> list[str]:
    """Messages during overlapping evaluations, of which the first ends at once and the other after `messages`."""

    async def work() -> None:
        first = FirstBuild()
        with first.reported(source, spec):
            with first.reported(source, spec):
                await asyncio.sleep(0)
            while len(caplog.records) < messages:  # noqa: ASYNC110  (the log has no event)
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
        assert first._reporting is None

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    return [record.getMessage() for record in caplog.records]


def test_the_first_build_reports_reason_and_progress(caplog: pytest.LogCaptureFixture) -> None:
    first, *progress = reported(caplog, 5)
    assert first == FIRST
    assert all(line.startswith("still precompiling PyTorch's headers after ") for line in progress)


@pytest.mark.parametrize(
    ("source", "spec"),
    [("x = 1\n", CPP), (EXTENSION, {"language": "cuda", "device_only": True}), (EXTENSION, None)],
    ids=["no extension", "device code only", "no toolchain"],
)
def test_an_evaluation_that_precompiles_nothing_reports_nothing(
    source: str, spec, caplog: pytest.LogCaptureFixture
) -> None:
    assert reported(caplog, 0, source, spec) == []


def test_the_report_ends_when_the_headers_are_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = iter([[], []])
    monkeypatch.setattr(first_build, "precompiled_headers", lambda language: next(found, ["types"]))
    first, progress = reported(caplog, 2)
    assert first == FIRST
    assert progress.startswith("still")
