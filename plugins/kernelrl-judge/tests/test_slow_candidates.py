"""A candidate that keeps its judge waiting on a GPU gives way to timed sections, where it can be stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kernelrl_judge.dialogue import Dialogue


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
    monkeypatch.setattr("kernelrl_judge.device_facts.becomes_idle", lambda within_s: True)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelrl_judge.device_facts.becomes_idle", lambda within_s: False)


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
