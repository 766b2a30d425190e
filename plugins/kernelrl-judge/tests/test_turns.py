"""Who may use a device when. Two objects with the same name stand for two judges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelrl_judge.turns import DeviceTurns


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], DeviceTurns]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return lambda: DeviceTurns("a-device", lambda: None)


class Timed(threading.Thread):
    """Wants the device alone, and keeps it for a moment."""

    def __init__(self, turns: DeviceTurns) -> None:
        super().__init__(daemon=True)
        self._turns = turns
        self.entered = threading.Event()
        self.may_leave = threading.Event()
        self.start()

    def run(self) -> None:
        with self._turns.alone():
            self.entered.set()
            self.may_leave.wait(20)


def entered_within(turns: DeviceTurns, seconds: float) -> bool:
    """Whether a shared turn is had in that time."""
    done = threading.Event()

    def enter() -> None:
        with turns.shared():
            done.set()

    threading.Thread(target=enter, daemon=True).start()
    return done.wait(seconds)


def test_shared_turns_are_had_together_and_a_timed_one_alone(turns: Callable[[], DeviceTurns]) -> None:
    with turns().shared():
        assert entered_within(turns(), 5)
        timed = Timed(turns())
        assert not timed.entered.wait(0.3)
    assert timed.entered.wait(5)
    assert not entered_within(turns(), 0.3)
    timed.may_leave.set()
    assert entered_within(turns(), 5)


def test_a_timed_section_that_waits_lets_nobody_in(turns: Callable[[], DeviceTurns]) -> None:
    with turns().shared():
        timed = Timed(turns())
        time.sleep(0.2)
        assert not entered_within(turns(), 0.5)
    assert timed.entered.wait(5)
    timed.may_leave.set()


def test_it_lets_others_in_while_somebody_is_slow(turns: Callable[[], DeviceTurns]) -> None:
    with turns().shared() as turn:
        timed = Timed(turns())
        time.sleep(0.2)
        turn.say_slow()
        assert entered_within(turns(), 2)
        assert not timed.entered.is_set()
    assert timed.entered.wait(5)
    timed.may_leave.set()


def test_it_does_not_wait_for_ever(turns: Callable[[], DeviceTurns]) -> None:
    with turns().shared() as turn:
        turn.say_slow()
        timed = Timed(turns())
        time.sleep(3.5)
        assert not entered_within(turns(), 0.5)
    assert timed.entered.wait(5)
    timed.may_leave.set()


def test_what_was_slow_is_forgotten_with_its_turn(turns: Callable[[], DeviceTurns]) -> None:
    mine = turns()
    with mine.shared() as turn:
        turn.say_slow()
    with mine.shared():
        timed = Timed(turns())
        time.sleep(0.2)
        assert not entered_within(turns(), 0.5)
    assert timed.entered.wait(5)
    timed.may_leave.set()


class Shared(threading.Thread):
    """Wants a shared turn, and keeps it for a moment."""

    def __init__(self, turns: DeviceTurns) -> None:
        super().__init__(daemon=True)
        self._turns = turns
        self.entered = threading.Event()
        self.may_leave = threading.Event()
        self.start()

    def run(self) -> None:
        with self._turns.shared():
            self.entered.set()
            self.may_leave.wait(20)


def test_timed_sections_that_wait_follow_one_another(turns: Callable[[], DeviceTurns]) -> None:
    first = Timed(turns())
    assert first.entered.wait(5)
    shared = Shared(turns())
    second = Timed(turns())
    time.sleep(0.1)
    first.may_leave.set()
    assert second.entered.wait(5)
    assert not shared.entered.wait(0.2)
    second.may_leave.set()
    assert shared.entered.wait(5)
    shared.may_leave.set()


def test_who_waited_long_for_a_shared_turn_comes_first_and_brings_others_along(
    turns: Callable[[], DeviceTurns],
) -> None:
    first = Timed(turns())
    assert first.entered.wait(5)
    long_waiting = Shared(turns())
    time.sleep(1.2)
    late = Shared(turns())
    second = Timed(turns())
    time.sleep(0.1)
    first.may_leave.set()
    assert long_waiting.entered.wait(5)
    assert late.entered.wait(5)
    assert not second.entered.is_set()
    long_waiting.may_leave.set()
    late.may_leave.set()
    assert second.entered.wait(5)
    second.may_leave.set()


def test_a_shared_turn_knows_that_it_keeps_a_timed_section_waiting(turns: Callable[[], DeviceTurns]) -> None:
    with turns().shared() as turn:
        assert not turn.keeps_timed_waiting()
        timed = Timed(turns())
        time.sleep(0.2)
        assert turn.keeps_timed_waiting()
        with turn.paused():
            assert timed.entered.wait(5)
            timed.may_leave.set()
        assert not turn.keeps_timed_waiting()
