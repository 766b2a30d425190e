"""The ways KernelBench times a kernel, for verdicts that compare with its own.

The clock runs in the process of the candidate, as it does there: use them to compare, and `window` to pay. Each gives
the times of single calls in milliseconds, and KernelBench reports their mean.

    cuda_event    3 warm-ups; per trial: wait, empty the L2 cache, an event on each side of a call; the first is dropped
    do_bench      Triton's own routine with its default budget; the number of trials plays no part
    do_bench_impl a fixed number of warm-ups and trials in the manner of Triton's routine, without waiting between them
    host_time     the host's clock around one call and a wait for the device
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from kernelrl_core.api.evaluators import EvaluationSettings, RuntimeStatistics
from kernelrl_judge import protocol
from kernelrl_judge.direct_timing import Timing
from kernelrl_judge.exchange import Exchange
from kernelrl_judge.input_indices import FIRST_TIMED
from kernelrl_judge.protocol import FrameKind, ProtocolError
from kernelrl_judge.reference import Reference
from kernelrl_judge.running import Runner
from kernelrl_judge.statistics import interval_of_ratio, summarise
from kernelrl_judge.value_trees import decode_tree, encode_tree

__all__ = ["KernelBenchMeasurement", "measure"]

_WARM_UPS = 3
_FLUSH_BYTES = 256 << 20
_MAX_TRIALS = 2000


def measure(call: Callable[[], Any], method: str, trials: int, device: str) -> list[float]:
    """Times of single calls, in milliseconds."""
    trials = min(trials, _MAX_TRIALS)
    with torch.no_grad():
        if device != "cuda":
            return _host_times(call, trials, device)
        match method:
            case "cuda_event":
                return _event_times(call, trials)
            case "do_bench":
                from triton.testing import do_bench

                times: list[float] = do_bench(call, return_mode="all")
                return [float(value) for value in times]
            case "do_bench_impl":
                return _queued_times(call, trials)
            case _:
                return _host_times(call, trials, device)


class KernelBenchMeasurement:
    """Times of candidate and reference by the method that the settings name."""

    def __init__(
        self,
        runner: Runner,
        reference: Reference,
        exchange: Exchange,
        expect: Callable[..., protocol.Frame],
        settings: EvaluationSettings,
    ) -> None:
        self._runner = runner
        self._reference = reference
        self._exchange = exchange
        self._expect = expect
        self._method = settings.timing_method
        self._candidate_us: list[float] = []
        self._baseline_us: list[float] = []

    def run(self, trials: int) -> None:
        """Time both sides.

        Raises:
            ProtocolError: what the runner says cannot be, such as more time than passed.
            What `expect` raises.
        """
        inputs = self._reference.inputs(FIRST_TIMED)
        order = {"arguments": self._exchange.share(inputs), "method": self._method, "trials": trials}
        started = time.perf_counter()
        self._runner.send(FrameKind.TIME, encode_tree(order))
        said = decode_tree(self._expect(FrameKind.FACTS).body)
        passed_ms = (time.perf_counter() - started) * 1e3
        if not isinstance(said, list) or not said or not all(isinstance(value, float) and value > 0 for value in said):
            raise ProtocolError("times that are none")
        if sum(said) > passed_ms:
            raise ProtocolError("more time than passed")
        self._candidate_us = [value * 1e3 for value in said]
        times_ms = measure(lambda: self._reference.model(*inputs), self._method, trials, self._reference.device)
        self._baseline_us = [value * 1e3 for value in times_ms]
        self._reference.restore()

    def release(self) -> None:
        """Nothing is kept."""

    def result(self) -> Timing:
        """Means and speedup."""
        runtime, baseline = _by_mean(self._candidate_us), _by_mean(self._baseline_us)
        count = min(len(self._candidate_us), len(self._baseline_us))
        return Timing(
            runtime,
            baseline,
            speedup=baseline.median_us / runtime.median_us,
            speedup_ci=interval_of_ratio(self._baseline_us[:count], self._candidate_us[:count]),
            telemetry={"method": self._method, "trials": len(self._candidate_us)},
        )


def _by_mean(samples_us: list[float]) -> RuntimeStatistics:
    """Statistics whose middle is the mean, as KernelBench reports it."""
    found = summarise(samples_us)
    return RuntimeStatistics(statistics.fmean(samples_us), found.p10_us, found.p90_us, found.ci95_us, found.n)


def _event_times(call: Callable[[], Any], trials: int) -> list[float]:
    for _ in range(_WARM_UPS):
        call()
        torch.cuda.synchronize()
    torch.cuda.empty_cache()
    flush = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    times = []
    for _ in range(trials + 1):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        flush.fill_(42)
        first.record()
        call()
        last.record()
        torch.cuda.synchronize()
        times.append(float(first.elapsed_time(last)))
    return times[1:]


def _queued_times(call: Callable[[], Any], trials: int) -> list[float]:
    flush = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    for _ in range(_WARM_UPS):
        call()
    pairs = []
    for _ in range(trials):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.zero_()
        first.record()
        call()
        last.record()
        pairs.append((first, last))
    torch.cuda.synchronize()
    return [float(first.elapsed_time(last)) for first, last in pairs]


def _host_times(call: Callable[[], Any], trials: int, device: str) -> list[float]:
    flush = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device=device) if device == "cuda" else None
    times = []
    for index in range(_WARM_UPS + trials):
        if flush is not None:
            flush.zero_()
            torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        if index >= _WARM_UPS:
            times.append((time.perf_counter() - started) * 1e3)
    return times
