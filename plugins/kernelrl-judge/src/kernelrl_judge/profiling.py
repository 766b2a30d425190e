"""Which kernels a call spends its time in: telemetry from inside the runner, for feedback and for suspicion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["device_kernels"]

_MOST = 32


def device_kernels(call: Callable[[], Any]) -> list[dict[str, Any]]:
    """Kernels of one call, the longest first: name, share of the device's time, calls, microseconds."""
    from torch.profiler import ProfilerActivity, profile

    call()
    on_gpu = torch.cuda.is_available()
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    # Of one cycle there is nothing to accumulate; without it the profiler prints a warning that would be shown as the
    # candidate's.
    with profile(activities=[activity], acc_events=True) as found:
        call()
    times: list[tuple[str, float, int]] = []
    for event in found.key_averages():
        spent_us = float(event.self_device_time_total if on_gpu else event.self_cpu_time_total)
        if spent_us > 0:
            times.append((str(event.key)[:160], spent_us, int(event.count)))
    total_us = sum(spent_us for _, spent_us, _ in times) or 1.0
    times.sort(key=lambda entry: -entry[1])
    return [
        {"name": name, "share": spent_us / total_us, "calls": count, "time_us": spent_us}
        for name, spent_us, count in times[:_MOST]
    ]
