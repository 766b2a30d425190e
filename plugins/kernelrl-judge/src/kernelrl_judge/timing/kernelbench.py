"""Times of candidate and baseline by the methods of KernelBench, for comparison with its results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import attrs

from kernelrl_core.api.evaluators import EvaluationSettings, RuntimeStatistics
from kernelrl_judge.peer.memory import Exchange
from kernelrl_judge.peer.process import Runner
from kernelrl_judge.protocol import frames
from kernelrl_judge.protocol.frames import FrameKind, ProtocolError
from kernelrl_judge.protocol.values import decode_tree, encode_tree
from kernelrl_judge.runner.kernelbench import measure
from kernelrl_judge.task.reference import FIRST_TIMED, Reference
from kernelrl_judge.timing.statistics import Timing, interval_of_ratio, summarise

__all__ = ["KernelBenchMeasurement"]


@attrs.define(eq=False)
class KernelBenchMeasurement:
    """Times of candidate and reference by the method that the settings name."""

    _runner: Runner
    _reference: Reference
    _exchange: Exchange
    _expect: Callable[..., frames.Frame]
    _settings: EvaluationSettings
    _candidate_us: list[float] = attrs.field(factory=list)
    _baseline_us: list[float] = attrs.field(factory=list)

    def run(self, trials: int) -> None:
        """Time both sides.

        Raises:
            ProtocolError: what the runner says cannot be, such as more time than passed.
            What `expect` raises.
        """
        inputs = self._reference.inputs(FIRST_TIMED)
        order = {"arguments": self._exchange.share(inputs), "method": self._settings.timing_method, "trials": trials}
        started = time.perf_counter()
        self._runner.send(FrameKind.TIME, encode_tree(order))
        said = decode_tree(self._expect(FrameKind.FACTS).body)
        passed_ms = (time.perf_counter() - started) * 1e3
        if not isinstance(said, list) or not said or not all(isinstance(value, float) and value > 0 for value in said):
            raise ProtocolError("times that are none")
        if sum(said) > passed_ms:
            raise ProtocolError("more time than passed")
        self._candidate_us = [value * 1e3 for value in said]
        times_ms = measure(
            lambda: self._reference.model(*inputs), self._settings.timing_method, trials, self._reference.device
        )
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
            telemetry={"method": self._settings.timing_method, "trials": len(self._candidate_us)},
        )


def _by_mean(samples_us: list[float]) -> RuntimeStatistics:
    """Statistics whose middle is the mean, as KernelBench reports it."""
    return attrs.evolve(summarise(samples_us), median_us=statistics.fmean(samples_us))
