"""The probe of a device, and its request to a judge process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from kernelrl_judge.client import worker
from kernelrl_judge.client.worker import JudgeWorker
from kernelrl_judge.judge import health
from kernelrl_testing.waiting import takes_async


def test_a_sound_device_passes_the_probe() -> None:
    assert health.probe("cpu") is None


def test_a_wrong_product_fails_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.matmul

    def wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        product = right(a, b)
        if product.dtype == torch.float32:
            product[3, 5] += 1
        return product

    monkeypatch.setattr(torch, "matmul", wrong)
    assert (health.probe("cpu") or "").startswith("1 of 262144 elements")


def test_memory_that_loses_a_pattern_fails_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "equal", lambda *_: False)
    assert "memory" in (health.probe("cpu") or "")


def test_an_error_of_the_driver_fails_the_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered\nCompile with ...")

    monkeypatch.setattr(torch, "bitwise_not", fail)
    assert (health.probe("cpu") or "").startswith("CUDA error: uncorrectable ECC error encountered Compile")


def test_a_device_whose_memory_others_hold_is_probed_once_more_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[str] = []

    class Lease:
        def __init__(self, *_: object) -> None:
            pass

        @contextlib.contextmanager
        def _hold(self, name: str) -> Iterator[None]:
            entered.append(name)
            yield

        def shared(self) -> Any:
            return self._hold("shared")

        def alone(self) -> Any:
            return self._hold("alone")

    monkeypatch.setattr(health, "probe", lambda _: None if "alone" in entered else "CUDA out of memory")
    limits: list[float] = []
    assert health.examine("cpu", limits.append, cast(Any, Lease)) is None
    assert entered == ["shared", "alone"]
    assert len(limits) == 4


def test_a_judge_lives_on_after_a_passed_probe_and_ends_after_a_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    async def probe_judge() -> None:
        judge = JudgeWorker({"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""})
        try:
            assert await judge.probe("cpu") is None
            process = await judge._started()
            assert await judge.probe("cpu") is None
            assert process.returncode is None
            assert await judge.probe("cuda")
            assert process.returncode is not None
        finally:
            await judge.aclose()

    asyncio.run(probe_judge())


_STAND_IN = """\
#!/usr/bin/env python3
import struct, sys, time
body = b'{"ready": true, "missing_layers": []}'
sys.stdout.buffer.write(struct.pack("<I", len(body)) + body)
sys.stdout.flush()
HERE
"""


@pytest.mark.parametrize(
    ("then", "reason"), [("time.sleep(60)", "did not go on within"), ("sys.stdin.buffer.read(4)", "ended during")]
)
def test_a_judge_that_hangs_or_ends_in_a_probe_is_a_failed_probe(
    then: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(_STAND_IN.replace("HERE", then))
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    monkeypatch.setattr(worker, "_PROBE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(worker, "_END_TIMEOUT_S", 0.3)

    async def probe_judge() -> None:
        judge = JudgeWorker()
        assert reason in (await judge.probe() or "")
        assert judge._process is None

    asyncio.run(probe_judge())


def test_a_probe_that_is_cancelled_ends_its_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(_STAND_IN.replace("HERE", "time.sleep(60)"))
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    monkeypatch.setattr(worker, "_END_TIMEOUT_S", 0.3)

    async def probe_judge() -> None:
        judge = JudgeWorker()
        process = await judge._started()
        probing = asyncio.create_task(judge.probe())
        await takes_async(0.1)
        probing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probing
        assert process.returncode is not None

    asyncio.run(probe_judge())
