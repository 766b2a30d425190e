"""The timing of one candidate that is correct: its measurement, its speedup, and what the device could have done."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import attrs

from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, Finding, Severity
from kernelrl_judge import device_facts, host_memory, overheads, timing
from kernelrl_judge.comparing import tolerance
from kernelrl_judge.dialogue import Dialogue
from kernelrl_judge.exchange import Exchange
from kernelrl_judge.memory_floor import memory_floor_us
from kernelrl_judge.protocol import FrameKind
from kernelrl_judge.reference import Reference
from kernelrl_judge.replay.measurement import ReplayMeasurement
from kernelrl_judge.roofline import roofline
from kernelrl_judge.rounds import Rounds
from kernelrl_judge.running import Runner
from kernelrl_judge.stress_calls import StressCall
from kernelrl_judge.value_trees import encode_tree
from kernelrl_judge.watching import Watch

__all__ = ["CaseTiming"]


class CaseTiming:
    """Times a candidate: `prepare` for windows, where others may use the device, then `run`, then `weighed`.

    Args:
        profile: that of the case, to which is added what was seen.
        costs: of the GPU's turns.
        message_s: what it takes to send an order and to hear its answer, in seconds.
        harsh: calls for the windows that are watched.
        replayed: a measurement by replays, prepared, in the place of windows.
    """

    def __init__(
        self,
        request: EvaluationRequest,
        runner: Runner,
        dialogue: Dialogue,
        reference: Reference,
        exchange: Exchange,
        profile: dict[str, Any],
        *,
        costs: overheads.TurnCosts,
        message_s: float,
        harsh: list[StressCall],
        replayed: ReplayMeasurement | None = None,
    ) -> None:
        self._request = request
        self._settings = request.settings
        self._runner = runner
        self._dialogue = dialogue
        self._reference = reference
        self._exchange = exchange
        self._device = reference.device
        self._profile = profile
        self._result: Callable[[], timing.Timing]
        self._measurement: timing.Measurement | ReplayMeasurement | None = replayed
        self._is_replay = replayed is not None
        if replayed is not None or self._settings.timing_method != "replay":
            return
        self._runner.deadline = time.monotonic() + self._settings.timeout_s
        watch = self._watch(harsh)
        rounds = Rounds(
            runner,
            reference,
            exchange,
            dialogue.expect,
            limit=tolerance(self._settings),
            message_s=message_s,
            costs=costs,
            reads_again="late_writes" in self._settings.probes,
            watch=watch,
        )
        self._measurement = timing.Measurement(reference, rounds, watch)

    def _watch(self, harsh: list[StressCall]) -> Watch | None:
        """Who looks at some windows more; None where no probe asks for that."""
        if self._settings.profile != "strict" or not {"operators", "inputs"} & set(self._settings.probes):
            return None
        return Watch(self._runner, self._reference, self._exchange, self._dialogue.expect, self._settings, harsh)

    @property
    def has_windows(self) -> bool:
        """Whether there is something to prepare: not for the methods of KernelBench."""
        return self._measurement is not None

    def prepare(self) -> None:
        """What can be done of a measurement while others use the device."""
        assert self._measurement is not None
        try:
            self._measurement.prepare()
        except BaseException:
            self._measurement.release()
            raise

    def run(self) -> None:
        """Time the candidate, on a device that is this judge's alone."""
        self._runner.deadline = time.monotonic() + self._settings.timeout_s
        measurement = self._measurement
        # On the processor candidate and reference have threads, which need all there are.
        with self._runner.apart() if self._device == "cuda" else host_memory.kept():
            if measurement is None:
                from kernelrl_judge.kernelbench_timing import compare

                runner, expect = self._runner, self._dialogue.expect
                compared = compare(runner, self._reference, self._exchange, expect, self._settings)
                self._result = lambda: compared
                return
            try:
                measurement.run(self._settings.timing_trials)
            finally:
                measurement.release()
            if self._is_replay:
                self._result = measurement.result
                return
            # What the last windows have left of the runner's code is told of with an answer that nobody times.
            self._runner.send(FrameKind.RETURN, encode_tree({"calls": [], "held": {}}))
            self._dialogue.expect(FrameKind.RESULT)
        self._result = lambda: self._of_windows(measurement)

    def _of_windows(self, measurement: timing.Measurement | ReplayMeasurement) -> timing.Timing:
        seen = measurement.operators if isinstance(measurement, timing.Measurement) else []
        if seen:
            known = self._profile.get("computing_operators", [])
            self._profile["computing_operators"] = [*dict.fromkeys([*known, *seen])]
        return measurement.result()

    def weighed(self, correct: Evaluation, ceilings: device_facts.Ceilings) -> Evaluation:
        """The evaluation of a correct candidate with its speedup. Takes a while, and little of the device."""
        reference, found = self._reference, self._result()
        findings = [*correct.findings, *found.findings]
        limit = self._settings.excessive_speedup
        if limit is not None and found.speedup > limit:
            evidence = f"a speedup of {found.speedup:.1f}, above {limit:g}"
            findings.append(Finding("excessive_speedup", Severity.SUSPECT, evidence, checker="judge"))
        baseline, speedup, interval = self._against_baseline(found)
        self._profile["timing"] = found.telemetry
        line = self._profile["roofline"] = roofline(reference, found.runtime.median_us, ceilings)
        if self._device == "cuda" and self._settings.timing_method == "replay" and line["bandwidth_share"] > 1.0:
            # Too fast for all of its bytes: were all of them needed?
            calls = int(found.telemetry["calls_per_window"])
            with self._dialogue.turn(alone=False):
                line["memory_floor_us"] = memory_floor_us(
                    reference, calls, ceilings.bandwidth_gb_s, device_facts.cache_bytes()
                )
        return attrs.evolve(
            correct,
            findings=tuple(findings),
            runtime=found.runtime,
            baseline=baseline,
            speedup=speedup,
            speedup_ci=interval,
        )

    def _against_baseline(self, found: timing.Timing) -> tuple[Any, float, tuple[float, float]]:
        """The baseline that is asked for: eager as it was interleaved, or compiled by its known share of eager."""
        if self._settings.baseline == "eager":
            return found.baseline, found.speedup, found.speedup_ci
        from kernelrl_judge.baselines import compiled_share

        self._profile["eager_speedup"] = found.speedup
        recorders, eager_us = None, found.baseline.median_us
        if isinstance(self._measurement, ReplayMeasurement):
            recorders = self._measurement.recorders
        share = compiled_share(
            self._reference, self._request, cache_directory(), self._dialogue.turn, recorders, eager_us
        )
        scaled = attrs.evolve(
            found.baseline,
            median_us=found.baseline.median_us * share,
            p10_us=found.baseline.p10_us * share,
            p90_us=found.baseline.p90_us * share,
            ci95_us=(found.baseline.ci95_us[0] * share, found.baseline.ci95_us[1] * share),
        )
        return scaled, found.speedup * share, (found.speedup_ci[0] * share, found.speedup_ci[1] * share)
