"""What a judge does when its GPU has no memory left, which others may have taken."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from kernelrl_core.types import Evaluation, EvaluationRequest, EvaluationSettings, Outcome
from kernelrl_judge.judge.session import Bench, DeviceFault, DeviceFull
from kernelrl_judge.peer.nursery import ZygoteDied, Zygotes
from kernelrl_judge.peer.replay import NotRecorded
from kernelrl_judge.probes import messages
from kernelrl_judge.protocol.device_memory import DeviceMemoryError
from kernelrl_judge.protocol.failures import lacks_device_memory

CORRECT = Evaluation(Outcome.CORRECT, "")
WITHOUT = Evaluation(Outcome.OUT_OF_MEMORY, "")


class Backend:
    def mode(self, options: Any, has_gpu: bool) -> str:
        return "gpu"

    def environment(self, mode: str, options: Any) -> dict[str, str]:
        return {}


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Evaluation, list[bool]]]:
    """Runs an evaluation whose runners end as given; returns its result, and which runners had the GPU alone."""
    module = types.ModuleType("backend_of_this_test")
    module.Backend = Backend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr("kernelrl_judge.peer.device_facts.memory_bytes", lambda device: 1 << 36)
    monkeypatch.setattr("kernelrl_judge.peer.device_facts.device_name", lambda device: "a-gpu")

    def run(*endings: Any, alone: bool = False) -> tuple[Evaluation, list[bool]]:
        had_it_alone: list[bool] = []

        def judged(*arguments: Any) -> Any:
            had_it_alone.append(arguments[-1] is None)
            ending = endings[len(had_it_alone) - 1]
            if isinstance(ending, Exception):
                raise ending
            return ending

        monkeypatch.setattr(Bench, "_judged", judged)
        bench = Bench(Zygotes(cast(Any, None)), lambda: False, 0, lambda: None)
        request = EvaluationRequest("t", "", "", "", "", "b", {}, EvaluationSettings(), "0" * 32, "0")
        return bench.evaluate(request, "backend_of_this_test:Backend", alone=alone), had_it_alone

    return run


@pytest.mark.parametrize(
    "ending",
    [
        (WITHOUT, True),
        torch.OutOfMemoryError("CUDA out of memory."),
        DeviceMemoryError("cuMemCreate failed with CUDA error 2 (out of memory)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        NotRecorded("out of memory", lacks_memory=True),
    ],
)
def test_beside_other_evaluations_there_is_no_verdict_without_memory(judge: Any, ending: Any) -> None:
    with pytest.raises(DeviceFull):
        judge(ending)


def test_an_evaluation_without_others_has_the_gpu_to_itself(judge: Any) -> None:
    assert judge((CORRECT, False), alone=True) == (CORRECT, [True])


def test_a_candidate_that_takes_all_memory_of_an_empty_gpu_is_out_of_memory(judge: Any) -> None:
    assert judge((WITHOUT, True), alone=True) == (WITHOUT, [True])


def test_a_candidate_that_takes_all_memory_of_the_host_is_out_of_memory(judge: Any) -> None:
    assert judge((WITHOUT, False)) == (WITHOUT, [False])


KILLED = Evaluation(Outcome.RUNTIME_ERROR, messages.KILLED)


def test_a_killed_runner_is_no_verdict_beside_other_evaluations(judge: Any) -> None:
    with pytest.raises(ZygoteDied):
        judge((KILLED, False))


def test_a_runner_that_is_killed_again_alone_has_a_runtime_error(judge: Any) -> None:
    assert judge((KILLED, False), alone=True)[0].outcome is Outcome.RUNTIME_ERROR


def test_a_judge_without_memory_on_an_empty_gpu_blames_nobody_else(judge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (15 << 32, 1 << 36))
    with pytest.raises(DeviceFull):
        judge(torch.OutOfMemoryError("CUDA out of memory."), alone=True)


def test_memory_that_other_programs_hold_is_a_fault_of_the_device(judge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (12 << 32, 1 << 36))
    with pytest.raises(DeviceFault, match="other programs hold 16384 MiB") as raised:
        judge(torch.OutOfMemoryError("CUDA out of memory."), alone=True)
    assert not isinstance(raised.value, DeviceFull)


@pytest.mark.parametrize(("reserved_gib", "given_back"), [(0.9, 0), (1.1, 2)])
def test_memory_above_the_share_of_a_judge_is_given_back(
    judge: Any, monkeypatch: pytest.MonkeyPatch, reserved_gib: float, given_back: int
) -> None:
    emptied: list[None] = []
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: int(reserved_gib * (1 << 30)))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(None))
    judge((CORRECT, False))
    assert len(emptied) == given_back


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB.", True),
        ("NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("std::bad_alloc", False),
        ("CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_texts_that_say_that_a_device_lacks_memory(text: str, lacks: bool) -> None:
    assert lacks_device_memory(text) is lacks
