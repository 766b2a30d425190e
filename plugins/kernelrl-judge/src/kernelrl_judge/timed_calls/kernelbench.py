"""KernelBench's methods to time a kernel. As in KernelBench, the clock is in the process of the candidate.

Each method returns the times of single calls in milliseconds; KernelBench reports their mean.

    cuda_event    3 warm-ups; per trial: wait, empty the L2 cache, an event on each side of a call; the first is dropped
    do_bench      Triton's own routine with its default budget; the number of trials has no effect
    do_bench_impl a fixed number of warm-ups and trials as in Triton's routine, without waiting between them
    host_time     the host's clock around one call and a wait for the device
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["measure"]

_WARM_UPS = 3
_FLUSH_BYTES = 256 << 20
_MAX_TRIALS = 2000


def measure(call: Callable[[], Any], method: str, trials: int, device: str) -> list[float]:
    """Times of single calls, in milliseconds.

    Args:
        method: `cuda_event`, `do_bench`, `do_bench_impl` or `host_time`. The CPU has `host_time` only.
        device: `cpu` or `cuda`.
    """
    trials = min(trials, _MAX_TRIALS)
    with torch.no_grad():
        if device != "cuda":
            return _host_times(call, trials, device)
        match method:
            case "cuda_event" | "do_bench_impl":
                return _event_times(call, trials, waits=method == "cuda_event")
            case "do_bench":
                from triton.testing import do_bench

                times: list[float] = do_bench(call, return_mode="all")
                return [float(value) for value in times]
            case _:
                return _host_times(call, trials, device)


def _event_times(call: Callable[[], Any], trials: int, *, waits: bool) -> list[float]:
    for _ in range(_WARM_UPS):
        call()
        if waits:
            torch.cuda.synchronize()
    if waits:
        torch.cuda.empty_cache()
    flush = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    pairs = []
    for _ in range(trials + waits):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if waits:
            torch.cuda.synchronize()
        flush.zero_()
        first.record()
        call()
        last.record()
        pairs.append((first, last))
    torch.cuda.synchronize()
    return [float(first.elapsed_time(last)) for first, last in pairs[int(waits) :]]


def _host_times(call: Callable[[], Any], trials: int, device: str) -> list[float]:
    on_gpu = device == "cuda"
    flush = torch.empty(_FLUSH_BYTES // 4 if on_gpu else 0, dtype=torch.int32, device=device)
    wait: Callable[[], Any] = torch.cuda.synchronize if on_gpu else lambda: None
    times = []
    for _ in range(_WARM_UPS + trials):
        flush.zero_()
        wait()
        started = time.perf_counter()
        call()
        wait()
        times.append((time.perf_counter() - started) * 1e3)
    return times[_WARM_UPS:]
