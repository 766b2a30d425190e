"""The device of a model, and its lease while judges time kernels there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.policies import DeviceLease
from kernelrl_plugin_torch import devices
from kernelrl_plugin_torch.config import TorchConfig
from kernelrl_plugin_torch.devices import DeviceShare, usable_device


@pytest.fixture
def pretended_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fake GPU with real locks."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(devices, "usable_device", torch.device)
    monkeypatch.setattr(devices, "device_name", lambda: "gpu-test")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return "gpu-test"


def test_the_model_waits_while_a_kernel_is_timed(pretended_gpu: str) -> None:
    done = threading.Event()
    worker = threading.Thread(target=lambda: DeviceShare("cuda", lambda: None).do(done.set))
    with DeviceLease(pretended_gpu, lambda: None).alone():
        worker.start()
        assert not done.wait(0.2)
    worker.join(5)
    assert done.is_set()


def test_no_kernel_is_timed_while_the_model_computes(pretended_gpu: str) -> None:
    entered = threading.Event()
    judge = timed(pretended_gpu, entered)

    def work() -> None:
        judge.start()
        assert not entered.wait(0.2)

    DeviceShare("cuda", lambda: None).do(work)
    judge.join(5)
    assert entered.is_set()


def test_a_kernel_is_timed_between_two_parts_of_long_work(pretended_gpu: str) -> None:
    entered = threading.Event()
    share = DeviceShare("cuda", lambda: None)
    judge = timed(pretended_gpu, entered)

    def work() -> bool:
        judge.start()
        return waits_giving_way(share, entered)

    assert share.do(work)
    judge.join(5)


def test_long_work_has_a_turn_between_two_timed_kernels(pretended_gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_LEAST_TURN_S", 600.0)
    first, second = threading.Event(), threading.Event()
    share = DeviceShare("cuda", lambda: None)
    judges = [timed(pretended_gpu, first), timed(pretended_gpu, second)]

    def work() -> None:
        judges[0].start()
        assert waits_giving_way(share, first)
        judges[1].start()
        share.give_way()
        assert not second.wait(0.1)

    share.do(work)
    for judge in judges:
        judge.join(5)
    assert second.is_set()


def timed(gpu: str, entered: threading.Event) -> threading.Thread:
    """A judge that times a kernel."""

    def measure() -> None:
        with DeviceLease(gpu, lambda: None).alone():
            entered.set()

    return threading.Thread(target=measure)


def waits_giving_way(share: DeviceShare, entered: threading.Event) -> bool:
    for _ in range(2000):
        share.give_way()
        if entered.wait(0.01):
            return True
    return False


def test_waiting_ends_when_the_policy_is_closed(pretended_gpu: str) -> None:
    def closed() -> None:
        raise InterruptedError("closed")

    with DeviceLease(pretended_gpu, lambda: None).alone(), pytest.raises(InterruptedError):
        DeviceShare("cuda", closed).do(lambda: None)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 6918144 bytes."),
        RuntimeError("unable to mmap 538090408 bytes from file <model.safetensors>: Cannot allocate memory (12)"),
    ],
)
def test_too_little_memory_of_the_machine_is_named_with_a_fix(error: Exception) -> None:
    def work() -> None:
        raise error

    with pytest.raises(UsageError, match="the memory of the machine is too small for the policy") as caught:
        DeviceShare("cpu", lambda: None).do(work)
    assert "policy.sample_rows" in caught.value.fix


def test_another_error_of_the_model_is_not_changed() -> None:
    def work() -> None:
        raise RuntimeError("index out of range")

    with pytest.raises(RuntimeError, match="index out of range"):
        DeviceShare("cpu", lambda: None).do(work)


def test_a_model_from_scratch_may_run_on_a_gpu() -> None:
    options = TorchConfig(device="cuda")
    assert not list(options.problems())
    assert options.requires().gpu == "any"


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_a_missing_prerequisite() -> None:
    with pytest.raises(MissingPrerequisite, match="finds no GPU"):
        usable_device("cuda")
