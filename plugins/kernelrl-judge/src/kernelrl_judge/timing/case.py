"""The timing of one candidate that is correct: its measurement, its speedup, and what the device could have done."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import attrs

from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest
from kernelrl_judge.peer import device_facts
from kernelrl_judge.peer.dialogue import Dialogue
from kernelrl_judge.peer.memory import Exchange
from kernelrl_judge.peer.process import Runner
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.timing.replay import ReplayMeasurement
from kernelrl_judge.timing.roofline import memory_floor_us, roofline
from kernelrl_judge.timing.statistics import Timing

__all__ = ["CaseTiming"]


@attrs.define(eq=False, slots=False)
class CaseTiming:
    """Times a candidate: `run`, then `weighed`."""

    _request: EvaluationRequest
    _runner: Runner
    _dialogue: Dialogue
    _reference: Reference
    _exchange: Exchange
    _profile: dict[str, Any]
    """That of the case, to which is added what was seen."""
    _replayed: ReplayMeasurement | None = None
    """A measurement by replays, prepared."""

    def __attrs_post_init__(self) -> None:
        self._settings, self._device = self._request.settings, self._reference.device
        self._measurement = self._replayed or self._direct()

    def _direct(self) -> Any:
        # A measurement by replays does without.
        from kernelrl_judge.timing.direct import DirectMeasurement
        from kernelrl_judge.timing.kernelbench import KernelBenchMeasurement

        direct = DirectMeasurement if self._settings.timing_method == "replay" else KernelBenchMeasurement
        return direct(self._runner, self._reference, self._exchange, self._dialogue.expect, self._settings)

    def _memory_kept(self) -> contextlib.AbstractContextManager[None]:
        if self._device == "cuda":
            return contextlib.nullcontext()
        from kernelrl_judge.runner import host_memory

        return host_memory.kept()

    def run(self) -> None:
        """Time the candidate, on a device that is this judge's alone."""
        self._runner.deadline = time.monotonic() + self._settings.timeout_s
        with self._memory_kept():
            try:
                self._measurement.run(self._settings.timing_trials)
            finally:
                self._measurement.release()

    def weighed(self, correct: Evaluation, ceilings: device_facts.Ceilings) -> Evaluation:
        """The evaluation of a correct candidate with its speedup. Takes a while, and little of the device."""
        reference, found = self._reference, self._measurement.result()
        findings = [*correct.findings]
        limit = self._settings.excessive_speedup
        if limit is not None and found.speedup > limit:
            evidence = f"a speedup of {found.speedup:.1f}, above {limit:g}"
            findings.append(finding("excessive_speedup", evidence))
        baseline, speedup, interval = self._against_baseline(found)
        self._profile["timing"] = found.telemetry
        line = self._profile["roofline"] = roofline(reference, found.runtime.median_us, ceilings)
        if self._device == "cuda" and self._settings.timing_method == "replay" and line["bandwidth_share"] > 1.0:
            # Too fast for all of its bytes: were all of them needed?
            calls, cache_bytes = int(found.telemetry["calls_per_window"]), device_facts.cache_bytes()
            with self._dialogue.turn(alone=False):
                line["memory_floor_us"] = memory_floor_us(reference, calls, ceilings.bandwidth_gb_s, cache_bytes)
        return attrs.evolve(
            correct,
            findings=tuple(findings),
            runtime=found.runtime,
            baseline=baseline,
            speedup=speedup,
            speedup_ci=interval,
        )

    def _against_baseline(self, found: Timing) -> tuple[Any, float, tuple[float, float]]:
        """The baseline that is asked for: eager as it was interleaved, or compiled by its known share of eager."""
        if self._settings.baseline == "eager":
            return found.baseline, found.speedup, found.speedup_ci
        from kernelrl_judge.timing.baselines import compiled_share

        self._profile["eager_speedup"] = found.speedup
        recorders = self._replayed.recorders if self._replayed is not None else None
        eager_us = found.baseline.median_us
        share = compiled_share(
            self._reference, self._request, cache_directory(), self._dialogue.turn, recorders, eager_us
        )
        low, high = (end * share for end in found.baseline.ci95_us)
        times = {name: getattr(found.baseline, name) * share for name in ("median_us", "p10_us", "p90_us")}
        scaled = attrs.evolve(found.baseline, **times, ci95_us=(low, high))
        return scaled, found.speedup * share, (found.speedup_ci[0] * share, found.speedup_ci[1] * share)
