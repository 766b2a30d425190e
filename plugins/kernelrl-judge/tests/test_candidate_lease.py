"""The device lease of a candidate: released to timed work of others while the candidate is slow or compiles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from kernelrl_judge.peer.channel import RunnerChannel
from kernelrl_judge.peer.lease import CandidateLease
from kernelrl_judge.peer.process import RunnerEnded
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.runner.compile_pauses import _finish_kernels
from kernelrl_testing.waiting import takes

PAUSE_S = 0.2
"""Time for which others use the device."""


class Substitute:
    """Replacement for the process of a runner and for its held lease; keeps a log of the calls."""

    def __init__(self, *frames: FrameKind, timed_waits: bool = False) -> None:
        self.frames = [*frames]
        self.timed_waits = timed_waits
        self.deadline = 100.0
        self.log: list[str] = []

    def receive(self, *_: Any) -> Frame:
        if not self.frames:
            raise RunnerEnded("killed")
        return Frame(self.frames.pop(0), b"")

    def send(self, kind: FrameKind) -> None:
        self.log.append(kind.name)

    def keeps_timed_waiting(self) -> bool:
        return self.timed_waits

    def say_slow(self) -> None:
        self.log.append("slow")

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        self.log.append("stopped")
        yield
        self.log.append("continued")

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        self.log.append("others")
        takes(PAUSE_S)
        yield


def lease_of(substitute: Any) -> CandidateLease:
    """A lease of a GPU that is held."""
    lease = CandidateLease(substitute, None, "cuda", lambda: None)
    lease._held = substitute
    return lease


def channel_of(substitute: Any, lease: CandidateLease) -> RunnerChannel:
    no_builds: Any = None
    return RunnerChannel(substitute, lease, no_builds)


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelrl_judge.peer.lease.becomes_idle", lambda within_s: True)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelrl_judge.peer.lease.becomes_idle", lambda within_s: False)


@pytest.mark.usefixtures("idle")
def test_a_slow_candidate_is_stopped_while_others_are_timed_and_loses_no_time_of_its_own() -> None:
    substitute = Substitute(timed_waits=True)
    assert lease_of(substitute).let_others_first() is not None
    assert substitute.log == ["stopped", "others", "continued"]
    assert substitute.deadline >= 100.0 + PAUSE_S


@pytest.mark.usefixtures("busy")
def test_a_candidate_whose_kernels_run_is_reported_as_slow() -> None:
    substitute = Substitute(timed_waits=True)
    assert lease_of(substitute).let_others_first() is not None
    assert substitute.log == ["stopped", "slow", "continued"]


def test_a_candidate_whose_kernels_run_is_stopped_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    def again_s(*, is_idle: bool) -> float | None:
        monkeypatch.setattr("kernelrl_judge.peer.lease.becomes_idle", lambda within_s: is_idle)
        return lease_of(Substitute(timed_waits=True)).let_others_first()

    after_idle_s, after_busy_s = again_s(is_idle=True), again_s(is_idle=False)
    assert after_idle_s is not None
    assert after_busy_s is not None
    assert after_busy_s > after_idle_s


@pytest.mark.usefixtures("idle")
def test_a_slow_candidate_is_not_stopped_if_no_timed_work_waits() -> None:
    substitute = Substitute(timed_waits=False)
    assert lease_of(substitute).let_others_first() is not None
    assert (substitute.log, substitute.deadline) == ([], 100.0)


@pytest.mark.usefixtures("idle")
def test_others_have_the_device_while_a_candidate_compiles() -> None:
    substitute = Substitute(FrameKind.COMPILED)
    lease = lease_of(substitute)
    channel_of(substitute, lease)._wait_for_compilation()
    assert substitute.log == ["others", "RESUME"]
    assert lease._held is substitute


@pytest.mark.usefixtures("busy")
def test_a_device_that_is_not_idle_is_not_released_when_a_runner_reports_compilation() -> None:
    substitute = Substitute(FrameKind.COMPILED)
    channel_of(substitute, lease_of(substitute))._wait_for_compilation()
    assert substitute.log == ["RESUME"]


@pytest.mark.usefixtures("idle")
def test_the_lease_is_held_after_an_error_while_it_was_released() -> None:
    substitute = Substitute()
    lease = lease_of(substitute)
    with pytest.raises(RunnerEnded):
        channel_of(substitute, lease)._wait_for_compilation()
    assert lease._held is substitute


@pytest.mark.parametrize(("initialised", "capturing", "waits"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_a_runner_waits_for_its_kernels_before_others_have_the_device(
    monkeypatch: pytest.MonkeyPatch, initialised: bool, capturing: bool, waits: int
) -> None:
    synchronised: list[int] = []
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: initialised)
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: capturing)
    monkeypatch.setattr("torch.cuda.synchronize", lambda: synchronised.append(1))
    _finish_kernels()
    assert len(synchronised) == waits
