"""Leases of one device that several processes or threads request."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.api.evaluators import DeviceLease
from kernelrl_testing.waiting import DEADLINE_S, takes


def hold(device: str, log: Any, name: str, alone: bool, hold_s: float) -> None:
    lease = DeviceLease(device, lambda: None)
    with lease.alone() if alone else lease.shared():
        log.put((name, "in", time.monotonic()))
        takes(hold_s)
        log.put((name, "out", time.monotonic()))


def test_timed_work_has_the_device_alone_and_other_work_shares_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    log = context.Queue()
    device = f"test-{tmp_path.name}-{time.monotonic_ns()}"
    workers = [
        context.Process(target=hold, args=(device, log, name, name.startswith("alone"), 0.3))
        for name in ("shared1", "shared2", "alone1", "alone2")
    ]
    for worker in workers:
        worker.start()
    events = sorted([log.get(timeout=DEADLINE_S) for _ in range(8)], key=lambda entry: entry[2])
    for worker in workers:
        worker.join()
    inside: set[str] = set()
    for name, event, _ in events:
        inside = inside | {name} if event == "in" else inside - {name}
        if any(held.startswith("alone") for held in inside):
            assert len(inside) == 1


def test_a_paused_lease_admits_others() -> None:
    device = f"test-pause-{time.monotonic_ns()}"
    mine, others = DeviceLease(device, lambda: None), DeviceLease(device, lambda: None)
    entered = threading.Event()

    def enter() -> None:
        with others.alone():
            entered.set()

    with mine.shared() as lease:
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.2)
        with lease.paused():
            assert entered.wait(DEADLINE_S)
    thread.join()


def test_a_wait_for_a_lease_ends_when_its_evaluation_is_over() -> None:
    device = f"test-wait-{time.monotonic_ns()}"

    class Cancelled(Exception):
        pass

    def cancelled() -> None:
        raise Cancelled

    with DeviceLease(device, lambda: None).alone(), pytest.raises(Cancelled), DeviceLease(device, cancelled).alone():
        pass
