"""Costs of a window of direct calls, CPU time beyond its threads, and time of other programs."""

from __future__ import annotations

import pytest
import torch

from kernelrl_judge.timing.direct_measurement import constant_cost_s, counted_window, widened


@pytest.mark.parametrize(
    ("threads", "ran_ms", "waiting_ms", "counted_ms"),
    [
        (1, 6.0, 0.0, 6.0),
        # 12 ms of CPU time in a window of 6 ms: one thread can use 6 ms.
        (1, 12.0, 0.0, 12.0),
        (2, 12.0, 0.0, 6.0),
        (2, 24.0, 0.0, 12.0),
        # Other programs had the processor for 2 ms.
        (1, 4.0, 2.0, 4.0),
        # The thread slept for 3 ms, which count.
        (1, 1.0, 2.0, 4.0),
        # A thread that waits beside one that works makes nothing shorter.
        (1, 5.5, 5.0, 5.5),
    ],
)
def test_a_window_counts_its_cpu_time_at_least_and_no_time_of_other_programs(
    threads: int, ran_ms: float, waiting_ms: float, counted_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    window = counted_window(6e-3, ran_ms / 1e3, waiting_ms / 1e3)
    assert window.seconds == pytest.approx(counted_ms / 1e3)
    assert window.waited_s == pytest.approx(max(0.0, 6.0 - counted_ms) / 1e3)


def test_an_interval_that_was_measured_beside_other_programs_is_wider() -> None:
    assert widened((2.0, 3.0), 0.05) == (2.0, 3.0)
    assert widened((2.0, 3.0), 0.8) == pytest.approx((1.6, 3.6))


def test_the_constant_cost_of_a_window_is_the_excess_of_two_halves_over_the_whole() -> None:
    # 0.2 ms a window and 1 ms a call: 8.2 ms for 8 calls, 4.2 ms for 4.
    assert constant_cost_s([(8.2e-3, 4.2e-3)] * 3, 2.0) == pytest.approx(0.2e-3)


def test_the_constant_cost_of_a_window_is_bounded() -> None:
    assert constant_cost_s([(8e-3, 3e-3)], 2.0) == 0.0
    # 2 ms by the formula; at most a tenth of the window is subtracted.
    assert constant_cost_s([(8e-3, 5e-3)], 2.0) == pytest.approx(0.8e-3)
