"""The timing phase of one correct candidate: its windows, its speedup over the baseline, and its roofline."""

from __future__ import annotations

import contextlib
import time
from typing import Protocol

import attrs

from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.evaluators import EvaluationRequest, Roofline, RuntimeStatistics, TimingFacts
from kernelrl_judge.device.ceilings import Ceilings, measured_ceilings
from kernelrl_judge.device.facts import cache_bytes
from kernelrl_judge.peer.session import RunnerSession
from kernelrl_judge.replay.capture import Recorder
from kernelrl_judge.task.drawn_parameters import ParameterDraws
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.timing.roofline import memory_floor_us, roofline
from kernelrl_judge.timing.statistics import Timing

__all__ = ["MeasuredWindows", "Measurement", "TimingResults", "direct_measurement", "measure", "timing_results"]


class Measurement(Protocol):
    """Windows of one candidate and its baseline."""

    def run(self, max_rounds: int) -> None:
        """Time both sides. The judge holds the device exclusively."""
        ...

    def release(self) -> None:
        """Free the memory that only `run` needs."""
        ...

    def result(self) -> Timing:
        """Medians and speedup."""
        ...


@attrs.frozen
class MeasuredWindows:
    """Times of a candidate, and the rates of the device that they were measured on."""

    timing: Timing
    ceilings: Ceilings


@attrs.frozen
class TimingResults:
    """Results of the timing phase."""

    runtime: RuntimeStatistics
    baseline: RuntimeStatistics
    speedup: float
    speedup_ci: tuple[float, float]
    eager_speedup: float | None
    """Speedup over PyTorch eager; None where eager is the baseline."""
    facts: TimingFacts
    roofline: Roofline
    raw_speedup: float
    """Speedup over PyTorch eager, whatever the baseline is."""


def direct_measurement(session: RunnerSession, draws: ParameterDraws) -> Measurement:
    """Windows of direct calls, or calls by a method of KernelBench, as the settings request."""
    # Most evaluations on a GPU are replayed and need neither module.
    reference = draws.reference
    if reference.settings.timing_method == "replay":
        from kernelrl_judge.timing.direct_measurement import DirectMeasurement

        return DirectMeasurement(session, draws)
    from kernelrl_judge.timing.kernelbench_measurement import KernelBenchMeasurement

    return KernelBenchMeasurement(session, reference)


def measure(session: RunnerSession, reference: Reference, measurement: Measurement) -> MeasuredWindows:
    """Time a candidate. The judge holds the device exclusively.

    Raises:
        WrongWindow: an output of a timed call is wrong.
        NotTimed: the times cannot be trusted.
        What `RunnerChannel.expect` raises.
    """
    settings = reference.settings
    session.process.deadline = time.monotonic() + settings.timeout_s
    with _freed_memory_kept(session.device):
        try:
            measurement.run(settings.timing_trials)
        finally:
            measurement.release()
    ceilings = measured_ceilings(session.device, reference.dtype, cache_directory())
    return MeasuredWindows(measurement.result(), ceilings)


def _freed_memory_kept(device: str) -> contextlib.AbstractContextManager[None]:
    """On the CPU, keep the memory that the judge frees between the calls of the baseline, as a runner does."""
    if device == "cuda":
        return contextlib.nullcontext()
    from kernelrl_judge.timed_calls import host_memory

    return host_memory.kept()


def timing_results(
    session: RunnerSession,
    reference: Reference,
    request: EvaluationRequest,
    measured: MeasuredWindows,
    recorder: Recorder | None,
) -> TimingResults:
    """Speedup over the baseline and roofline. Uses the device for a short time, shared with others.

    Args:
        recorder: records the compiled baseline; None where calls are not recorded.
    """
    timing, settings = measured.timing, request.settings
    baseline, speedup, speedup_ci, eager_speedup = timing.baseline, timing.speedup, timing.speedup_ci, None
    if settings.baseline != "eager":
        from kernelrl_judge.timing.baselines import compiled_share

        # Measured once per task, interleaved with eager: a drift of the clock since then cancels.
        share = compiled_share(reference, request, cache_directory(), session.lease, recorder, baseline.median_us)
        eager_speedup = speedup
        baseline = _scaled(baseline, share)
        speedup *= share
        speedup_ci = (speedup_ci[0] * share, speedup_ci[1] * share)
    line = roofline(reference, timing.runtime.median_us, measured.ceilings)
    is_replayed = session.device == "cuda" and settings.timing_method == "replay"
    if is_replayed and line.bandwidth_share > 1.0:
        # Too fast to move all bytes of the task: find out which bytes decide the output.
        with session.lease.held(alone=False):
            floor_us = memory_floor_us(
                reference, timing.facts.calls_per_window, measured.ceilings.bandwidth_gb_s, cache_bytes()
            )
        line = attrs.evolve(line, memory_floor_us=floor_us)
    return TimingResults(
        runtime=timing.runtime,
        baseline=baseline,
        speedup=speedup,
        speedup_ci=speedup_ci,
        eager_speedup=eager_speedup,
        facts=timing.facts,
        roofline=line,
        raw_speedup=timing.speedup,
    )


def _scaled(baseline: RuntimeStatistics, share: float) -> RuntimeStatistics:
    low, high = baseline.ci95_us
    return attrs.evolve(
        baseline,
        median_us=baseline.median_us * share,
        p10_us=baseline.p10_us * share,
        p90_us=baseline.p90_us * share,
        ci95_us=(low * share, high * share),
    )
