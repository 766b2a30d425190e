"""The first C++ build of a machine takes minutes; the evaluator reports its reason and its progress."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from kernelrl_plugin_local import evaluator
from kernelrl_plugin_local.config import LocalConfig


def test_the_first_build_reports_reason_and_progress(
    tmp_path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(evaluator, "_PROGRESS_S", 0.01)

    async def work() -> None:
        local = evaluator.LocalEvaluator(LocalConfig())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(local._announce_preparation(), 0.2)
        await local._announce_preparation()  # reported once
        await local.aclose()

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    assert sum("precompiles PyTorch's headers" in record.getMessage() for record in caplog.records) == 1
    assert any("still under way" in record.getMessage() for record in caplog.records)
