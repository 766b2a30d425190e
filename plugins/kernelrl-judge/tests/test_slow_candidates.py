"""A candidate that keeps its judge waiting on a GPU gives way to timed sections, where it can be stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kernelrl_judge.peer.dialogue import Dialogue
from kernelrl_judge.peer.process import RunnerEnded
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.runner.turns import _finish_kernels


class Device:
    """The runner and the turn of a case, and what became of them."""

    def __init__(self, *, waited_for: bool) -> None:
        self.waited_for = waited_for
        self.deadline = 100.0
        self.said: list[str] = []

    def keeps_timed_waiting(self) -> bool:
        return self.waited_for

    def say_slow(self) -> None:
        self.said.append("slow")

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        self.said.append("stopped")
        yield
        self.said.append("goes on")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self.said.append("others")
        time.sleep(0.2)
        yield


def dialogue(device: Any) -> Dialogue:
    made = Dialogue(device, lambda asked: (b"", []), "cuda", None, lambda: None, {})
    made._holding = device
    return made


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelrl_judge.peer.device_facts.becomes_idle", lambda within_s: True)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelrl_judge.peer.device_facts.becomes_idle", lambda within_s: False)


@pytest.mark.usefixtures("idle")
def test_it_is_stopped_while_others_are_timed_and_loses_no_time_of_its_own() -> None:
    device = Device(waited_for=True)
    assert dialogue(device).slow() is not None
    assert device.said == ["stopped", "others", "goes on"]
    assert device.deadline >= 100.2


@pytest.mark.usefixtures("busy")
def test_work_on_the_device_cannot_be_stopped_and_others_are_told() -> None:
    device = Device(waited_for=True)
    assert dialogue(device).slow() is not None
    assert device.said == ["stopped", "slow", "goes on"]


@pytest.mark.usefixtures("idle")
def test_nothing_happens_while_nobody_waits() -> None:
    device = Device(waited_for=False)
    assert dialogue(device).slow() is not None
    assert (device.said, device.deadline) == ([], 100.0)


class Compiling(Device):
    """A runner that compiles and has ended."""

    def __init__(self, *frames: FrameKind) -> None:
        super().__init__(waited_for=False)
        self.frames = [*frames]

    def receive(self) -> Frame:
        if not self.frames:
            raise RunnerEnded("killed")
        return Frame(self.frames.pop(0), b"")

    def send(self, kind: FrameKind) -> None:
        self.said.append(kind.name)


@pytest.mark.usefixtures("idle")
def test_others_have_the_device_while_a_candidate_compiles() -> None:
    device = Compiling(FrameKind.COMPILED)
    talk = dialogue(device)
    talk._compiled()
    assert device.said == ["others", "RESUME"]
    assert talk._holding is device


@pytest.mark.usefixtures("busy")
def test_a_device_that_is_not_idle_is_not_handed_over_whatever_a_runner_says() -> None:
    device = Compiling(FrameKind.COMPILED)
    dialogue(device)._compiled()
    assert device.said == ["RESUME"]


@pytest.mark.usefixtures("idle")
def test_the_lease_is_known_as_held_after_an_error_while_it_was_paused() -> None:
    device = Compiling()
    talk = dialogue(device)
    with pytest.raises(RunnerEnded):
        talk._compiled()
    assert talk._holding is device


@pytest.mark.parametrize(("initialised", "capturing", "waits"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_a_runner_finishes_its_kernels_before_others_have_the_device(
    monkeypatch: pytest.MonkeyPatch, initialised: bool, capturing: bool, waits: int
) -> None:
    waited: list[int] = []
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: initialised)
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: capturing)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: waited.append(1))
    _finish_kernels()
    assert len(waited) == waits
