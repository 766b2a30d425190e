"""Who may use a device when. Two objects with the same name stand for two judges."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelrl_core.api.policies import DeviceLease

LONG_S = 60
"""For what must happen, however slow the machine is."""


class Clock:
    """What turns have for the module `time`: it stands still until a test lets time pass."""

    def __init__(self) -> None:
        self._now = 0.0
        self._looked: set[int] = set()

    def monotonic(self) -> float:
        now = self._now
        self._looked.add(threading.get_ident())
        return now

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def pass_by(self, seconds: float, waiting: threading.Thread) -> None:
        """Let time pass for one who waits, once it has looked at the clock since time passed last."""
        until(lambda: waiting.ident in self._looked)
        self._now += seconds
        self._looked.clear()

    def pass_until(self, event: threading.Event) -> None:
        end = time.monotonic() + LONG_S
        while not event.wait(0.02):
            assert time.monotonic() < end
            self._now += 0.05


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("kernelrl_core.interfaces.device_lease.time", clock)
    return clock


@pytest.fixture
def turns(clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], DeviceLease]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return lambda: DeviceLease("a-device", lambda: None)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


class Timed(threading.Thread):
    """Wants the device alone, and keeps it until it may leave."""

    def __init__(self, turns: DeviceLease) -> None:
        super().__init__(daemon=True)
        self._turns = turns
        self.entered = threading.Event()
        self.may_leave = threading.Event()
        self.start()

    def run(self) -> None:
        with self._turns.alone():
            self.entered.set()
            self.may_leave.wait(LONG_S)


def entered_within(turns: DeviceLease, seconds: float) -> bool:
    """Whether a shared turn is had in that time."""
    done = threading.Event()

    def enter() -> None:
        with turns.shared():
            done.set()

    threading.Thread(target=enter, daemon=True).start()
    return done.wait(seconds)


def is_held(lock: Path) -> bool:
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_shared_turns_are_had_together_and_a_timed_one_alone(turns: Callable[[], DeviceLease]) -> None:
    with turns().shared():
        assert entered_within(turns(), LONG_S)
        timed = Timed(turns())
        assert not timed.entered.wait(0.3)
    assert timed.entered.wait(LONG_S)
    assert not entered_within(turns(), 0.3)
    timed.may_leave.set()
    assert entered_within(turns(), LONG_S)


def test_a_timed_section_that_waits_lets_nobody_in(turns: Callable[[], DeviceLease]) -> None:
    with turns().shared():
        timed = Timed(turns())
        until(turns().timed_section_waits)
        assert not entered_within(turns(), 0.5)
    assert timed.entered.wait(LONG_S)
    timed.may_leave.set()


def test_it_lets_others_in_while_somebody_is_slow(turns: Callable[[], DeviceLease], clock: Clock) -> None:
    with turns().shared() as turn:
        timed = Timed(turns())
        until(turns().timed_section_waits)
        turn.say_slow()
        assert entered_within(turns(), LONG_S)
        assert not timed.entered.is_set()
    clock.pass_until(timed.entered)
    timed.may_leave.set()


def test_it_does_not_wait_for_ever(turns: Callable[[], DeviceLease], clock: Clock) -> None:
    with turns().shared() as turn:
        turn.say_slow()
        timed = Timed(turns())
        clock.pass_by(2.5, timed)
        assert entered_within(turns(), LONG_S)
        clock.pass_by(1, timed)
        clock.pass_by(1, timed)  # What it decided before the first ends with this one.
        until(turns().timed_section_waits)
        assert not entered_within(turns(), 0.5)
    assert timed.entered.wait(LONG_S)
    timed.may_leave.set()


def test_what_was_slow_is_forgotten_with_its_turn(turns: Callable[[], DeviceLease]) -> None:
    mine = turns()
    with mine.shared() as turn:
        turn.say_slow()
    with mine.shared():
        timed = Timed(turns())
        until(turns().timed_section_waits)
        assert not entered_within(turns(), 0.5)
    assert timed.entered.wait(LONG_S)
    timed.may_leave.set()


class Shared(threading.Thread):
    """Wants a shared turn, and keeps it until it may leave."""

    def __init__(self, turns: DeviceLease) -> None:
        super().__init__(daemon=True)
        self._turns = turns
        self.entered = threading.Event()
        self.may_leave = threading.Event()
        self.start()

    def run(self) -> None:
        with self._turns.shared():
            self.entered.set()
            self.may_leave.wait(LONG_S)


def test_timed_sections_that_wait_follow_one_another(turns: Callable[[], DeviceLease]) -> None:
    first = Timed(turns())
    assert first.entered.wait(LONG_S)
    shared = Shared(turns())
    second = Timed(turns())
    until(turns().timed_section_waits)
    first.may_leave.set()
    assert second.entered.wait(LONG_S)
    assert not shared.entered.wait(0.2)
    second.may_leave.set()
    assert shared.entered.wait(LONG_S)
    shared.may_leave.set()


def test_who_waited_long_for_a_shared_turn_comes_first_and_brings_others_along(
    turns: Callable[[], DeviceLease], clock: Clock, tmp_path: Path
) -> None:
    first = Timed(turns())
    assert first.entered.wait(LONG_S)
    long_waiting = Shared(turns())
    clock.pass_by(4.0, long_waiting)
    (impatient,) = tmp_path.rglob("a-device.impatient")
    until(lambda: is_held(impatient))
    late = Shared(turns())
    second = Timed(turns())
    until(turns().timed_section_waits)
    first.may_leave.set()
    assert long_waiting.entered.wait(LONG_S)
    assert late.entered.wait(LONG_S)
    assert not second.entered.is_set()
    long_waiting.may_leave.set()
    late.may_leave.set()
    assert second.entered.wait(LONG_S)
    second.may_leave.set()


def test_a_shared_turn_knows_that_it_keeps_a_timed_section_waiting(turns: Callable[[], DeviceLease]) -> None:
    with turns().shared() as turn:
        assert not turn.keeps_timed_waiting()
        timed = Timed(turns())
        until(turns().timed_section_waits)
        assert turn.keeps_timed_waiting()
        with turn.paused():
            assert timed.entered.wait(LONG_S)
            timed.may_leave.set()
        assert not turn.keeps_timed_waiting()
