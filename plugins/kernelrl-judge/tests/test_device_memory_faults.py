"""Evaluations whose GPU lacks memory, and whether the candidate, the judge or another program took it."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
import torch

from kernelrl_core.api.evaluators import BuildStatus, Evaluation, Isolation, Outcome
from kernelrl_judge.device.faults import DeviceFault, DeviceFull
from kernelrl_judge.judge.candidate_run import Interruption, RunFacts
from kernelrl_judge.judge.evaluate import evaluate
from kernelrl_judge.judge.resources import Loan, Resources
from kernelrl_judge.peer.cancellation import CancelWatch
from kernelrl_judge.peer.channel import CandidateRaised
from kernelrl_judge.peer.nursery import ZygoteDied, Zygotes
from kernelrl_judge.peer.process import RunnerEnded
from kernelrl_judge.peer.recordings import NotRecorded
from kernelrl_judge.probes.trials import TrialResults
from kernelrl_judge.protocol.device_memory import DeviceMemoryError
from kernelrl_judge.protocol.failures import Failure, Phase, lacks_device_memory
from kernelrl_testing.values import make_request

GIB = 1 << 30
Evaluate: TypeAlias = Callable[..., tuple[Evaluation, list[bool]]]


def run_facts(
    interruption: Interruption | None = None, *, lacks_device_memory: bool = False, was_killed: bool = False
) -> RunFacts:
    """Facts of a run that passed one trial, or that an exception ended."""
    return RunFacts(
        interruption=interruption,
        not_recorded=interruption if isinstance(interruption, NotRecorded) else None,
        is_correct=interruption is None,
        was_killed=was_killed,
        lacks_device_memory=lacks_device_memory,
        isolation=Isolation(),
        build=BuildStatus.BUILT,
        compiled="",
        trials=None if interruption else TrialResults(1),
        stress=None,
        timing=None,
        not_timed="",
        ownership=None,
        parameters="",
        computing_operators=None,
        builds=(),
        build_requests=(),
        kernels=(),
        library_symbols=(),
        language="",
        sizes={},
        dtypes=None,
        has_random_reference=False,
        launches=None,
        printed="",
        phases_s={},
        seconds={},
    )


def out_of_memory(text: str) -> CandidateRaised:
    return CandidateRaised(Failure(Phase.FORWARD, "memory", "OutOfMemoryError", text))


CORRECT = run_facts()
WITHOUT_DEVICE_MEMORY = run_facts(out_of_memory("CUDA out of memory."), lacks_device_memory=True)
WITHOUT_HOST_MEMORY = run_facts(RunnerEnded("memory"))
KILLED = run_facts(RunnerEnded("signal 9"), was_killed=True)


class GpuBackend:
    """Replacement for the runner of a backend."""

    disables_kernels = False

    def mode(self, options: Any, has_gpu: bool) -> str:
        return "gpu"

    def environment(self, mode: str, options: Any) -> dict[str, str]:
        return {}


@pytest.fixture
def evaluate_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Evaluate]:
    """Evaluates with runs that end as given; returns the evaluation, and whether each run had the GPU exclusively."""
    module = types.ModuleType("backend_of_this_test")
    module.GpuBackend = GpuBackend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (60 * GIB, 64 * GIB))
    monkeypatch.setattr("kernelrl_judge.device.facts.memory_bytes", lambda device: 64 * GIB)
    monkeypatch.setattr("kernelrl_judge.judge.resources.device_name", lambda device: "a-gpu")
    monkeypatch.setattr("kernelrl_judge.judge.resources.supported", lambda: False)
    monkeypatch.setattr("kernelrl_judge.judge.conclusion.machine_facts", lambda device: {})
    monkeypatch.setattr(Resources, "_replay_recorder", lambda self: None)
    nothing_to_read, main_process = os.pipe()

    def evaluate_with(*endings: RunFacts | Exception, alone: bool = False) -> tuple[Evaluation, list[bool]]:
        had_gpu_exclusively: list[bool] = []
        remaining = iter(endings)

        def run_candidate(request: Any, plan: Any, loan: Loan, calls: Any, **_: Any) -> RunFacts:
            had_gpu_exclusively.append(loan.leases is None)
            ending = next(remaining)
            if isinstance(ending, Exception):
                raise ending
            return ending

        monkeypatch.setattr("kernelrl_judge.judge.evaluate.run_candidate", run_candidate)
        watch = CancelWatch(nothing_to_read)
        resources = Resources(Zygotes(cast(Any, None)), watch, cast(Any, None), lambda: None)
        target = f"{module.__name__}:GpuBackend"
        return evaluate(make_request(), target, resources, alone=alone), had_gpu_exclusively

    yield evaluate_with
    os.close(nothing_to_read)
    os.close(main_process)


@pytest.mark.parametrize(
    "ending",
    [
        WITHOUT_DEVICE_MEMORY,
        torch.OutOfMemoryError("CUDA out of memory."),
        DeviceMemoryError("cuMemCreate failed with CUDA error 2 (out of memory)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        run_facts(NotRecorded("out of memory", lacks_memory=True)),
    ],
    ids=["candidate", "torch", "driver", "cublas", "recording"],
)
def test_a_lack_of_memory_beside_other_evaluations_ends_without_an_evaluation(
    evaluate_with: Evaluate, ending: RunFacts | Exception
) -> None:
    with pytest.raises(DeviceFull):
        evaluate_with(ending)


def test_an_evaluation_without_others_has_the_gpu_exclusively(evaluate_with: Evaluate) -> None:
    evaluation, had_gpu_exclusively = evaluate_with(CORRECT, alone=True)
    assert (evaluation.outcome, had_gpu_exclusively) == (Outcome.CORRECT, [True])


def test_a_candidate_that_takes_all_memory_of_an_empty_gpu_is_out_of_memory(evaluate_with: Evaluate) -> None:
    evaluation, had_gpu_exclusively = evaluate_with(WITHOUT_DEVICE_MEMORY, alone=True)
    assert (evaluation.outcome, had_gpu_exclusively) == (Outcome.OUT_OF_MEMORY, [True])


def test_a_candidate_that_takes_all_memory_of_the_host_is_out_of_memory(evaluate_with: Evaluate) -> None:
    evaluation, had_gpu_exclusively = evaluate_with(WITHOUT_HOST_MEMORY)
    assert (evaluation.outcome, had_gpu_exclusively) == (Outcome.OUT_OF_MEMORY, [False])


def test_a_killed_runner_beside_other_evaluations_ends_without_an_evaluation(evaluate_with: Evaluate) -> None:
    with pytest.raises(ZygoteDied):
        evaluate_with(KILLED)


def test_a_runner_that_is_killed_again_alone_has_a_runtime_error(evaluate_with: Evaluate) -> None:
    assert evaluate_with(KILLED, alone=True)[0].outcome is Outcome.RUNTIME_ERROR


def test_a_judge_without_memory_on_an_empty_gpu_blames_no_other_program(
    evaluate_with: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (60 * GIB, 64 * GIB))
    with pytest.raises(DeviceFull):
        evaluate_with(torch.OutOfMemoryError("CUDA out of memory."), alone=True)


def test_memory_that_other_programs_hold_is_a_fault_of_the_device(
    evaluate_with: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (48 * GIB, 64 * GIB))
    with pytest.raises(DeviceFault, match="other programs hold 16384 MiB") as raised:
        evaluate_with(torch.OutOfMemoryError("CUDA out of memory."), alone=True)
    assert not isinstance(raised.value, DeviceFull)


@pytest.mark.parametrize(("reserved_gib", "n_emptied"), [(0.9, 0), (1.1, 2)])
def test_memory_above_the_share_of_a_judge_is_freed(
    evaluate_with: Evaluate, monkeypatch: pytest.MonkeyPatch, reserved_gib: float, n_emptied: int
) -> None:
    emptied: list[None] = []
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: int(reserved_gib * GIB))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(None))
    evaluate_with(CORRECT)
    assert len(emptied) == n_emptied


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
def test_texts_that_report_a_lack_of_device_memory(text: str, lacks: bool) -> None:
    assert lacks_device_memory(text) is lacks
