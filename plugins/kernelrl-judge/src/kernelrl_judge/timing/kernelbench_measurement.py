"""Times of candidate and baseline by the methods of KernelBench, for comparison with its results."""

from __future__ import annotations

import statistics
import time

import attrs

from kernelrl_core.api.evaluators import RuntimeStatistics, TimingFacts
from kernelrl_judge.peer.session import RunnerSession
from kernelrl_judge.protocol.frames import FrameKind, ProtocolError
from kernelrl_judge.protocol.orders import KernelBenchOrder
from kernelrl_judge.protocol.values import decode_tree
from kernelrl_judge.task.input_indices import FIRST_TIMED
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.timed_calls.kernelbench import measure
from kernelrl_judge.timing.statistics import Timing, interval_of_ratio, summarise

__all__ = ["KernelBenchMeasurement"]


@attrs.define(eq=False)
class KernelBenchMeasurement:
    """Times of candidate and reference by the method that the settings name."""

    _session: RunnerSession
    _reference: Reference
    _candidate_us: list[float] = attrs.field(factory=list)
    _baseline_us: list[float] = attrs.field(factory=list)

    def run(self, trials: int) -> None:
        """Time both sides.

        Raises:
            ProtocolError: the reported times are impossible, such as more time than passed.
            What `RunnerChannel.expect` raises.
        """
        method = self._reference.settings.timing_method
        inputs = self._reference.inputs(FIRST_TIMED)
        arguments = self._session.exchange.share(inputs)
        order = KernelBenchOrder(arguments=arguments, method=method, trials=trials)
        started = time.perf_counter()
        reply = self._session.channel.order(FrameKind.TIME, order.encoded(), reply=FrameKind.FACTS)
        reported_ms = decode_tree(reply.body)
        passed_ms = (time.perf_counter() - started) * 1e3
        if not isinstance(reported_ms, list) or not reported_ms:
            raise ProtocolError("malformed times")
        if not all(isinstance(value, float) and value > 0 for value in reported_ms):
            raise ProtocolError("malformed times")
        if sum(reported_ms) > passed_ms:
            raise ProtocolError("more time than passed")
        self._candidate_us = [value * 1e3 for value in reported_ms]
        times_ms = measure(lambda: self._reference.model(*inputs), method, trials, self._reference.device)
        self._baseline_us = [value * 1e3 for value in times_ms]
        self._reference.restore()

    def release(self) -> None:
        """Nothing to free."""

    def result(self) -> Timing:
        """Means and speedup."""
        runtime, baseline = _by_mean(self._candidate_us), _by_mean(self._baseline_us)
        count = min(len(self._candidate_us), len(self._baseline_us))
        return Timing(
            runtime,
            baseline,
            speedup=baseline.median_us / runtime.median_us,
            speedup_ci=interval_of_ratio(self._baseline_us[:count], self._candidate_us[:count]),
            facts=TimingFacts(method=self._reference.settings.timing_method, trials=len(self._candidate_us)),
        )


def _by_mean(samples_us: list[float]) -> RuntimeStatistics:
    """Statistics with the mean in place of the median, as KernelBench reports it."""
    return attrs.evolve(summarise(samples_us), median_us=statistics.fmean(samples_us))
