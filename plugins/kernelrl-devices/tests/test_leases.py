"""Order of shared and exclusive leases of a device. Two `DeviceLease` objects of one name act like two processes."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelrl_devices.leases import DeviceLease, Turn
from kernelrl_testing.waiting import takes, wait_until

LONG_S = 60
"""Time limit of events that must happen, also on a slow machine."""


class Clock:
    """Replacement for the module `time` in leases: time passes only when a test advances it."""

    def __init__(self) -> None:
        self._now = 0.0
        self._looked: set[int] = set()

    def monotonic(self) -> float:
        now = self._now
        self._looked.add(threading.get_ident())
        return now

    def sleep(self, seconds: float) -> None:
        takes(seconds)

    def pass_by(self, seconds: float, waiting: threading.Thread) -> None:
        """Advance the clock after the waiting thread has read it since the last advance."""
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
    monkeypatch.setattr("kernelrl_devices.leases.time", clock)
    return clock


@pytest.fixture
def lease(clock: Clock, tmp_path: Path) -> Callable[[], DeviceLease]:
    return lambda: DeviceLease(tmp_path, "a-device", lambda: None)


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, deadline_s=LONG_S)


class Timed(threading.Thread):
    """Requests an exclusive lease and holds it until `may_leave` is set."""

    def __init__(self, lease: DeviceLease) -> None:
        super().__init__(daemon=True)
        self._lease = lease
        self.entered = threading.Event()
        self.may_leave = threading.Event()
        self.start()

    def run(self) -> None:
        with self._lease.alone():
            self.entered.set()
            self.may_leave.wait(LONG_S)


def entered_within(lease: DeviceLease, seconds: float) -> bool:
    """True if a shared lease is granted in that time."""
    done = threading.Event()

    def enter() -> None:
        with lease.shared():
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


def test_shared_leases_are_concurrent_and_a_timed_one_is_exclusive(lease: Callable[[], DeviceLease]) -> None:
    with lease().shared():
        assert entered_within(lease(), LONG_S)
        timed = Timed(lease())
        assert not timed.entered.wait(0.3)
    assert timed.entered.wait(LONG_S)
    assert not entered_within(lease(), 0.3)
    timed.may_leave.set()
    assert entered_within(lease(), LONG_S)


def test_a_waiting_timed_section_blocks_new_shared_leases(lease: Callable[[], DeviceLease]) -> None:
    with lease().shared():
        timed = Timed(lease())
        until(lease().timed_section_waits)
        assert not entered_within(lease(), 0.5)
    assert timed.entered.wait(LONG_S)
    timed.may_leave.set()


def test_a_waiting_timed_section_admits_shared_leases_while_a_holder_is_slow(
    lease: Callable[[], DeviceLease], clock: Clock
) -> None:
    with lease().shared() as held:
        timed = Timed(lease())
        until(lease().timed_section_waits)
        held.say_slow()
        assert entered_within(lease(), LONG_S)
        assert not timed.entered.is_set()
    clock.pass_until(timed.entered)
    timed.may_leave.set()


def test_a_timed_section_stops_admitting_shared_leases_after_a_while(
    lease: Callable[[], DeviceLease], clock: Clock
) -> None:
    with lease().shared() as held:
        held.say_slow()
        timed = Timed(lease())
        clock.pass_by(2.5, timed)
        assert entered_within(lease(), LONG_S)
        clock.pass_by(1, timed)
        clock.pass_by(1, timed)  # A decision from before the first advance ends with this one.
        until(lease().timed_section_waits)
        assert not entered_within(lease(), 0.5)
    assert timed.entered.wait(LONG_S)
    timed.may_leave.set()


def test_the_report_of_a_slow_holder_ends_with_its_lease(lease: Callable[[], DeviceLease]) -> None:
    mine = lease()
    with mine.shared() as held:
        held.say_slow()
    with mine.shared():
        timed = Timed(lease())
        until(lease().timed_section_waits)
        assert not entered_within(lease(), 0.5)
    assert timed.entered.wait(LONG_S)
    timed.may_leave.set()


class Shared(threading.Thread):
    """Requests a shared lease and holds it until `may_leave` is set."""

    def __init__(self, lease: DeviceLease) -> None:
        super().__init__(daemon=True)
        self._lease = lease
        self.entered = threading.Event()
        self.may_leave = threading.Event()
        self.start()

    def run(self) -> None:
        with self._lease.shared():
            self.entered.set()
            self.may_leave.wait(LONG_S)


def test_timed_sections_that_wait_follow_one_another(lease: Callable[[], DeviceLease]) -> None:
    first = Timed(lease())
    assert first.entered.wait(LONG_S)
    shared = Shared(lease())
    second = Timed(lease())
    until(lease().timed_section_waits)
    first.may_leave.set()
    assert second.entered.wait(LONG_S)
    assert not shared.entered.wait(0.2)
    second.may_leave.set()
    assert shared.entered.wait(LONG_S)
    shared.may_leave.set()


def test_a_shared_request_that_waited_long_is_served_first_together_with_others(
    lease: Callable[[], DeviceLease], clock: Clock, tmp_path: Path
) -> None:
    first = Timed(lease())
    assert first.entered.wait(LONG_S)
    long_waiting = Shared(lease())
    clock.pass_by(4.0, long_waiting)
    (impatient,) = tmp_path.rglob("a-device.impatient")
    until(lambda: is_held(impatient))
    late = Shared(lease())
    second = Timed(lease())
    until(lease().timed_section_waits)
    first.may_leave.set()
    assert long_waiting.entered.wait(LONG_S)
    assert late.entered.wait(LONG_S)
    assert not second.entered.is_set()
    long_waiting.may_leave.set()
    late.may_leave.set()
    assert second.entered.wait(LONG_S)
    second.may_leave.set()


def test_a_shared_lease_reports_a_waiting_timed_section(lease: Callable[[], DeviceLease]) -> None:
    with lease().shared() as held:
        assert not held.keeps_timed_waiting()
        timed = Timed(lease())
        until(lease().timed_section_waits)
        assert held.keeps_timed_waiting()
        with held.paused():
            assert timed.entered.wait(LONG_S)
            timed.may_leave.set()
        assert not held.keeps_timed_waiting()


def test_a_turn_begins_when_the_one_before_ends_also_if_a_fork_has_its_descriptor(tmp_path: Path) -> None:
    first = Turn(tmp_path, "contexts", 1, LONG_S)
    assert first.descriptor is not None
    fork = os.dup(first.descriptor)
    second: list[Turn] = []
    waiting = threading.Thread(target=lambda: second.append(Turn(tmp_path, "contexts", 1, LONG_S)), daemon=True)
    waiting.start()
    takes(0.05)
    assert not second
    first.end()
    waiting.join(LONG_S)
    assert second[0].descriptor is not None
    second[0].end()
    os.close(fork)


def test_a_process_that_hangs_with_its_turn_does_not_stop_the_others(tmp_path: Path) -> None:
    hanging = Turn(tmp_path, "contexts", 1, LONG_S)
    impatient = Turn(tmp_path, "contexts", 1, 0.02)
    assert impatient.descriptor is None
    impatient.end()
    hanging.end()
    assert Turn(tmp_path, "contexts", 1, LONG_S).descriptor is not None
