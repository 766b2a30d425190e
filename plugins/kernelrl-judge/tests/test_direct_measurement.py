"""Costs of a window of direct calls, and CPU time beyond its threads."""

from __future__ import annotations

import pytest
import torch

from kernelrl_judge.timing.direct_measurement import beyond_window_s, constant_cost_s


@pytest.mark.parametrize(
    ("threads", "ran_ms", "beyond_ms"),
    # 12 ms of CPU time in a window of 6 ms: one thread can use 6 ms, so 6 ms are beyond it.
    [(1, 12.0, 6.0), (2, 12.0, 0.0), (1, 6.0, 0.0), (1, 2.0, 0.0), (2, 24.0, 6.0)],
)
def test_cpu_time_beyond_the_permitted_threads_is_added(
    threads: int, ran_ms: float, beyond_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    # Process 7 ran before the window, process 8 started in it, and process 6 ended in it.
    after_s = {7: 1.0 + ran_ms / 2000, 8: ran_ms / 2000}
    assert beyond_window_s({7: 1.0, 6: 3.0}, after_s, 6e-3) == pytest.approx(beyond_ms / 1000)


def test_the_constant_cost_of_a_window_is_the_excess_of_two_halves_over_the_whole() -> None:
    # 0.2 ms a window and 1 ms a call: 8.2 ms for 8 calls, 4.2 ms for 4.
    assert constant_cost_s([(8.2e-3, 4.2e-3)] * 3, 2.0) == pytest.approx(0.2e-3)


def test_the_constant_cost_of_a_window_is_bounded() -> None:
    assert constant_cost_s([(8e-3, 3e-3)], 2.0) == 0.0
    # 2 ms by the formula; at most a tenth of the window is subtracted.
    assert constant_cost_s([(8e-3, 5e-3)], 2.0) == pytest.approx(0.8e-3)
