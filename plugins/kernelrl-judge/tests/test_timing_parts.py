"""Statistics of run times, turns on a device, the store of builds, comparison in blocks."""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelrl_core.api.policies import DeviceLease
from kernelrl_core.types import EvaluationSettings
from kernelrl_judge.build.store import BuildStore
from kernelrl_judge.task import comparing
from kernelrl_judge.timing.direct import beyond_s, per_window_s
from kernelrl_judge.timing.statistics import interval_of_ratio, settled, summarise


def test_a_summary_holds_median_and_percentiles() -> None:
    found = summarise([float(value) for value in range(1, 102)])
    assert (found.median_us, found.p10_us, found.p90_us, found.n) == (51.0, 11.0, 91.0, 101)
    assert found.ci95_us[0] < 51.0 < found.ci95_us[1]


def test_equal_samples_have_an_interval_without_width() -> None:
    assert summarise([7.0] * 20).ci95_us == (7.0, 7.0)


def test_a_drift_of_both_sides_does_not_widen_the_interval_of_the_speedup() -> None:
    candidate = [10.0 + drift for drift in range(40)]
    low, high = interval_of_ratio([2 * value for value in candidate], candidate)
    assert (low, high) == (pytest.approx(2.0), pytest.approx(2.0))


def test_samples_settle_when_they_hardly_spread() -> None:
    assert settled([100.0 + (index % 3) * 0.1 for index in range(30)], 0.01)
    assert not settled([100.0 + (index % 7) * 10 for index in range(30)], 0.01)
    assert not settled([100.0, 100.0, 100.0], 0.01)


def _hold(device: str, log: Any, name: str, alone: bool, hold_s: float) -> None:
    turns = DeviceLease(device, lambda: None)
    with turns.alone() if alone else turns.shared():
        log.put((name, "in", time.monotonic()))
        time.sleep(hold_s)
        log.put((name, "out", time.monotonic()))


def test_timed_work_has_the_device_alone_and_other_work_shares_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    log = context.Queue()
    device = f"test-{tmp_path.name}-{time.monotonic_ns()}"
    workers = [
        context.Process(target=_hold, args=(device, log, name, name.startswith("alone"), 0.3))
        for name in ("shared1", "shared2", "alone1", "alone2")
    ]
    for worker in workers:
        worker.start()
    events = sorted([log.get(timeout=60) for _ in range(8)], key=lambda event: event[2])
    for worker in workers:
        worker.join()
    inside: set[str] = set()
    for name, what, _ in events:
        inside = inside | {name} if what == "in" else inside - {name}
        if any(held.startswith("alone") for held in inside):
            assert len(inside) == 1


def test_a_paused_turn_lets_others_in() -> None:
    device = f"test-pause-{time.monotonic_ns()}"
    mine, others = DeviceLease(device, lambda: None), DeviceLease(device, lambda: None)
    entered = threading.Event()

    def enter() -> None:
        with others.alone():
            entered.set()

    with mine.shared() as turn:
        thread = threading.Thread(target=enter)
        thread.start()
        assert not entered.wait(0.2)
        with turn.paused():
            assert entered.wait(5)
    thread.join()


def test_a_wait_for_a_turn_ends_when_nobody_needs_it_any_more() -> None:
    device = f"test-wait-{time.monotonic_ns()}"

    class Over(Exception):
        pass

    def over() -> None:
        raise Over

    with DeviceLease(device, lambda: None).alone(), pytest.raises(Over), DeviceLease(device, over).alone():
        pass


def test_a_build_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = BuildStore(tmp_path / "store", 1 << 30)
    file = tmp_path / "extension.so"
    file.write_bytes(b"binary")
    assert store.read("ab" * 32) is None
    written = store.write("ab" * 32, {"kind": "bound"}, file)
    found = store.read("ab" * 32)
    assert found == written
    assert Path(found["path"]).read_bytes() == b"binary"


def test_a_half_written_build_is_never_served(tmp_path: Path) -> None:
    store = BuildStore(tmp_path, 1 << 30)
    entry = tmp_path / "objects" / "cd" / ("cd" * 32)
    entry.mkdir(parents=True)
    assert store.read("cd" * 32) is None
    (entry / "result.json").write_text(json.dumps({"key": "cd" * 32, "file": "extension.so"}))
    assert store.read("cd" * 32) is None
    (entry / "result.json").write_text('{"key": "')
    assert store.read("cd" * 32) is None


def test_the_store_forgets_what_was_not_used_for_longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelrl_judge.build.store._PRUNING_SHARE", 1.0)
    file = tmp_path / "extension.so"
    file.write_bytes(bytes(1000))
    store = BuildStore(tmp_path / "store", 3000)
    for index, key in enumerate(("aa" * 32, "bb" * 32, "cc" * 32)):
        store.write(key, {}, file)
        if index == 1:
            time.sleep(0.01)
            store.read("aa" * 32)
    assert store.read("bb" * 32) is None
    assert store.read("aa" * 32) is not None


def test_large_outputs_are_compared_in_blocks_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    want = torch.linspace(-1, 1, 1000)
    got = want.clone()
    got[700] += 0.5
    limit = comparing.tolerance(EvaluationSettings())
    whole = comparing.compare_values(want, got, limit)
    monkeypatch.setattr(comparing, "_COMPARED_AT_ONCE", 64)
    parts = comparing.compare_values(want, got, limit)
    assert parts.kind == whole.kind
    assert parts.max_abs == pytest.approx(whole.max_abs)
    assert parts.mean_abs == pytest.approx(whole.mean_abs)
    assert parts.wrong_share == pytest.approx(whole.wrong_share)
    assert comparing.compare_values(want, want.clone(), limit) is None


@pytest.mark.parametrize(
    ("threads", "ran_ms", "beyond_ms"),
    # 12 ms of one thread, and 6 ms went by. What one thread has in 6 ms is 6 ms.
    [(1, 12.0, 6.0), (2, 12.0, 0.0), (1, 6.0, 0.0), (1, 2.0, 0.0), (2, 24.0, 6.0)],
)
def test_more_threads_than_were_promised_are_paid_for(
    threads: int, ran_ms: float, beyond_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    # One process was there before, and another was started in the window.
    after_s = {7: 1.0 + ran_ms / 2000, 8: ran_ms / 2000}
    assert beyond_s({7: 1.0, 6: 3.0}, after_s, 6e-3) == pytest.approx(beyond_ms / 1000)


def test_the_cost_of_a_window_is_what_two_halves_take_longer() -> None:
    # 0.2 ms a window and 1 ms a call: 8.2 ms for 8 calls, 4.2 ms for 4.
    assert per_window_s([(8.2e-3, 4.2e-3)] * 3, 2.0) == pytest.approx(0.2e-3)


def test_the_cost_of_a_window_is_bounded() -> None:
    assert per_window_s([(8e-3, 3e-3)], 2.0) == 0.0
    # 2 ms by the formula; at most a tenth of the window is subtracted.
    assert per_window_s([(8e-3, 5e-3)], 2.0) == pytest.approx(0.8e-3)
