"""The first C++ build of a machine takes minutes, and the evaluator says why."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest

from kernelrl_judge.client.pool import JudgePool

EXTENSION = "from torch.utils.cpp_extension import load_inline\nx = load_inline(name='x', cpp_sources=read('x.cpp'))\n"
CPP = {"language": "cpp", "device_only": False}
FIRST = "the first build precompiles PyTorch's headers, once: 1 to 3 minutes"


def reported(caplog: pytest.LogCaptureFixture, source: str = EXTENSION, spec=CPP) -> list[str]:
    """Messages during two evaluations."""
    request = SimpleNamespace(source=source, settings=None)

    async def work() -> None:
        pool = JudgePool(workers=1)
        await asyncio.gather(pool._compile(request, spec), pool._compile(request, spec))

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    return [record.getMessage() for record in caplog.records]


def test_the_first_build_says_once_why_it_takes_long(
    tmp_path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path))
    assert reported(caplog) == [FIRST]


@pytest.mark.parametrize(
    ("source", "spec"),
    [("x = 1\n", CPP), (EXTENSION, {"language": "cuda", "device_only": True}), (EXTENSION, None)],
    ids=["no extension", "device code only", "no toolchain"],
)
def test_an_evaluation_that_precompiles_nothing_says_nothing(
    tmp_path, monkeypatch: pytest.MonkeyPatch, source: str, spec, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path))
    assert reported(caplog, source, spec) == []


def test_headers_that_are_there_need_no_word(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("kernelrl_judge.build.survey.precompiled_headers", lambda language: ["types"])
    assert reported(caplog) == []
