"""One evaluation, from request to verdict, inside the judge."""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import torch

from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.evaluators import (
    BuildStatus,
    DeviceLease,
    Evaluation,
    EvaluationRequest,
    Finding,
    Isolation,
    Outcome,
)
from kernelrl_judge.build.kernel_facts import hidden_facts
from kernelrl_judge.build.service import target_archs
from kernelrl_judge.isolation.privileges import isolation_level
from kernelrl_judge.judge.outcome import Endings
from kernelrl_judge.peer import device_facts
from kernelrl_judge.peer.dialogue import CandidateFailed, Dialogue
from kernelrl_judge.peer.memory import ArenaExchange, Exchange
from kernelrl_judge.peer.nursery import Setting
from kernelrl_judge.peer.process import Runner
from kernelrl_judge.peer.replay import CandidateSession, NotRecorded
from kernelrl_judge.probes import messages
from kernelrl_judge.probes.stress import StressTrials, wanted
from kernelrl_judge.protocol.frames import FrameKind
from kernelrl_judge.protocol.values import decode_tree, encode_tree
from kernelrl_judge.replay.capture import Recorder
from kernelrl_judge.replay.library import Library
from kernelrl_judge.task.comparing import tolerance
from kernelrl_judge.task.parameters import Matched, matched
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.timing.case import CaseTiming
from kernelrl_judge.timing.roofline import count_work

if TYPE_CHECKING:
    from kernelrl_judge.probes.replayed import ReplayTrials
    from kernelrl_judge.probes.values import Trials
    from kernelrl_judge.timing.replay import ReplayMeasurement

__all__ = ["Case", "Resources"]


class Resources(Protocol):
    """What a case uses of its judge's: `kernelrl_judge.judge.session.Bench`."""

    def reference(self, request: EvaluationRequest, device: str) -> Reference: ...

    def replay(self, request: EvaluationRequest, device: str) -> tuple[Library, Recorder] | None: ...

    def exchange(self, runner: Runner, device: str) -> Exchange: ...

    def build(
        self, asked: bytes, setting: Setting, request: EvaluationRequest, *, disabled: bool = False
    ) -> tuple[bytes, list[int]]: ...


class Case:
    """One candidate before the judge."""

    def __init__(
        self,
        request: EvaluationRequest,
        runner: Runner,
        bench: Resources,
        setting: Setting,
        turns: DeviceLease | None,
        slow: Callable[[], None],
        *,
        disabled: bool = False,
        records: bool = True,
    ) -> None:
        """
        Args:
            disabled: let the candidate's kernels do nothing.
            records: judge by replays, where the settings ask for that.
        """
        self._records = records and not disabled
        self._request = request
        self._settings = request.settings
        self._runner = runner
        self._bench = bench
        self._setting = setting
        self._backend, self._mode, self._device = setting.backend, setting.mode, setting.device
        self._disabled = disabled
        self._started = time.monotonic()
        self._loaded_after_s = 0.0
        self._timing_s = 0.0
        self._stages_s: dict[str, float] = {}
        self._profile: dict[str, Any] = {"stages_s": self._stages_s}
        self._endings = Endings(self._settings, self._device, self._profile)
        self._dialogue = Dialogue(runner, self._built, self._device, turns, slow, self._profile)
        self._findings: tuple[Finding, ...] = ()
        self.provenance: dict[str, Any] = {}

    @property
    def lacks_device_memory(self) -> bool:
        """Whether the candidate ended for want of the device's memory."""
        return self._endings.lacks_device_memory

    def seconds(self) -> dict[str, float]:
        """Wall time by stage: loading and compiling, trials, windows, and waiting for a turn on the device."""
        whole = time.monotonic() - self._started
        build = self._dialogue.build_s + max(0.0, self._loaded_after_s - self._dialogue.build_s)
        run = max(0.0, whole - build - self._dialogue.waited_s - self._timing_s)
        return {"build": build, "run": run, "timing": self._timing_s, "wait": self._dialogue.waited_s}

    def slow(self) -> float | None:
        """The candidate keeps its judge waiting; returns in how many seconds to look again."""
        return self._dialogue.slow()

    def judge(self) -> Evaluation:
        """The verdict, with what was built beside what the source shows."""
        found = self._endings.of(self._judge)
        found = attrs.evolve(found, final=all(build.get("final", True) for build in self._profile.get("builds", ())))
        if not self._dialogue.orders or self._disabled:
            return found
        language = self._backend.toolchain(self._request.backend_options, self._mode)["language"]
        hidden, findings = hidden_facts(self._request.source, self._dialogue.orders, language)
        return attrs.evolve(found, hidden=hidden, findings=(*found.findings, *findings))

    def _judge(self) -> Evaluation:
        with self._stage("start"):
            missing = [str(layer) for layer in decode_tree(self._dialogue.expect(FrameKind.STARTED).body)]
        self._endings.isolation = Isolation(isolation_level(missing), tuple(missing))
        with self._stage("load"):
            note = self._load()
        if self._mode == "compile":
            spec = self._backend.toolchain(self._request.backend_options, self._mode)
            target = ", ".join(target_archs(spec)) if spec is not None else ""
            if spec is not None and not self._dialogue.orders:
                note = note or "nothing was compiled while the module was loaded"
            checked = note or self._compiled_for(target)
            ended = self._endings.end(Outcome.INFRA_ERROR, messages.compiled_only(checked, self._why_not_run()))
            return attrs.evolve(ended, checked=checked)
        replay = self._bench.replay(self._request, self._device) if self._records else None
        if replay is not None:
            return self._by_replay(*replay)
        return self._by_direct_calls()

    def _by_direct_calls(self) -> Evaluation:
        """The verdict from calls that the runner makes one by one."""
        # An evaluation by replays does without.
        from kernelrl_judge.probes.values import Trials

        with self._dialogue.turn(alone=False):
            reference, exchange = self._prepared_reference()
            with self._stage("trials"):
                expect = self._dialogue.expect
                calls = Trials(self._runner, exchange, expect, self._settings, self._device, lists=not self._disabled)
                found = calls.run(reference, lambda used: self._construct(used, exchange))
            self._endings.passed, self._findings = found.passed, calls.findings
            self._take_operators(calls)
            if found.wrong is not None:
                return self._endings.wrong(found.wrong, found.finding, other_parameters=found.other_parameters)
            if wanted(self._settings) and not self._disabled:
                with self._stage("stress"):
                    ended = self._stressed(calls, reference)
                self._take_operators(calls)
                if ended:
                    return self._endings.end(Outcome.CORRECT, "", findings=self._findings)
            if not self._settings.timing:
                return self._endings.end(Outcome.CORRECT, "", findings=self._findings)
            count_work(reference)
        timed, ceilings = self._timed(reference, exchange)
        correct = self._endings.end(Outcome.CORRECT, "", findings=self._findings)
        return attrs.evolve(timed.weighed(correct, ceilings), profile=self._profile)

    def _prepared_reference(self) -> tuple[Reference, Exchange]:
        with self._stage("reference"):
            reference = self._bench.reference(self._request, self._device)
            if reference.sizes:
                self.provenance["sizes"] = dict(reference.sizes)
            return reference, self._bench.exchange(self._runner, self._device)

    def _by_replay(self, library: Library, recorder: Recorder) -> Evaluation:
        """The verdict from replays of recorded calls.

        Raises:
            NotRecorded: the candidate or the reference cannot be recorded.
        """
        from kernelrl_judge.probes.replayed import ReplayTrials, ownership
        from kernelrl_judge.timing.replay import ReplayMeasurement, Unmeasured

        measurement, settings = None, self._settings
        with self._dialogue.turn(alone=False):
            reference, exchange = self._prepared_reference()
            if not isinstance(exchange, ArenaExchange):
                raise NotRecorded("this GPU cannot share memory between processes", of_reference=True)
            session = CandidateSession(self._runner, self._dialogue.expect, exchange)
            calls = ReplayTrials(session, settings, lambda used: self._construct(used, exchange))
            with self._stage("trials"):
                found = calls.run(reference)
            self._endings.passed, self._findings = found.passed, calls.findings
            if found.wrong is not None:
                return self._endings.wrong(found.wrong, found.finding, other_parameters=found.other_parameters)
            if wanted(settings):
                with self._stage("stress"):
                    ended = self._stressed(calls, reference)
                if ended:
                    return self._endings.end(Outcome.CORRECT, "", findings=self._findings)
            if settings.timing:
                count_work(reference)
                call_us = statistics.median(calls.call_us)
                measurement = ReplayMeasurement(library, recorder, session, reference, settings, call_us)
                with self._stage("lengths"):
                    measurement.prepare()
        timed, not_timed = None, ""
        if measurement is not None:
            try:
                timed = self._timed(reference, exchange, measurement)
            except Unmeasured as reason:
                not_timed = str(reason)
        with self._dialogue.turn(alone=False), self._stage("ownership"):
            facts, findings = ownership(session, [reference.trial(0), reference.trial(1)], tolerance(settings))
        self._profile |= facts
        # The recorded kernels tell more than what an extension is linked to.
        self._profile.pop("library_symbols", None)
        for finding in findings:
            return self._endings.end(
                Outcome.HACKED, messages.hacked(finding), detail=finding.evidence, findings=(*self._findings, *findings)
            )
        correct = self._endings.end(Outcome.CORRECT, "", findings=self._findings)
        if timed is None:
            return attrs.evolve(correct, not_timed=not_timed)
        return attrs.evolve(timed[0].weighed(correct, timed[1]), profile=self._profile)

    def _timed(
        self, reference: Reference, exchange: Exchange, replayed: ReplayMeasurement | None = None
    ) -> tuple[CaseTiming, device_facts.Ceilings]:
        timed = CaseTiming(self._request, self._runner, self._dialogue, reference, exchange, self._profile, replayed)
        with self._dialogue.turn(alone=True):
            started = time.monotonic()
            try:
                timed.run()
                ceilings = device_facts.ceilings(self._device, self._settings.precision, cache_directory())
            finally:
                self._timing_s = time.monotonic() - started
        if self._device == "cuda":
            # Windows of large tensors take gigabytes, which the next judge needs.
            torch.cuda.empty_cache()
        return timed, ceilings

    def _take_operators(self, calls: Trials) -> None:
        if calls.operators is not None:
            self._profile["computing_operators"] = calls.operators

    @contextlib.contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        """Wall time of a stage, builds within it included, for the profile."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._stages_s[name] = round(time.monotonic() - started, 4)

    def _compiled_for(self, target: str) -> str:
        """What compiling alone has shown."""
        left = [
            build.get("reason", "") for build in self._profile.get("builds", []) if build.get("route") == "unchecked"
        ]
        if left:
            return f"nothing was checked: the device code needs torch's headers for the GPU here ({left[0]})"
        return f"device code compiled for {target}; the host part was not"

    def _why_not_run(self) -> str:
        if self._request.backend_options.get("mode") == "compile":
            return "backend.mode is compile"
        if torch.cuda.is_available():
            return f"the GPU of this machine is not one for backend {self._request.backend}"
        return device_facts.no_gpu()[0]

    def _load(self) -> str:
        source = self._request.source.encode("utf-8", "surrogatepass")
        self._runner.files.share_text(source)
        order = {
            "source_offset": 0,
            "source_bytes": len(source),
            "options": json.dumps(dict(self._request.backend_options)),
            "disabled": self._disabled,
            "builds": self._backend.toolchain(self._request.backend_options, self._mode) is not None,
        }
        self._runner.send(FrameKind.LOAD, encode_tree(order))
        try:
            frame = self._dialogue.expect(FrameKind.LOADED)
        except CandidateFailed:
            self._endings.build = BuildStatus.FAILED
            raise
        self._endings.build = BuildStatus.BUILT
        self._loaded_after_s = time.monotonic() - self._started
        return str(decode_tree(frame.body)) if frame.body else ""

    def _built(self, asked: bytes) -> tuple[bytes, list[int]]:
        limit_s = self._settings.build_timeout_s
        if self._dialogue.build_s > limit_s:
            said = f"denied: the extensions of a candidate took longer than {limit_s:g} s to build, which all may take"
            return json.dumps({"error": said}).encode(), []
        return self._bench.build(asked, self._setting, self._request, disabled=self._disabled)

    def _construct(self, reference: Reference, exchange: Exchange) -> Matched:
        exchange.make_room(1)
        given = {"arguments": reference.arguments, "keywords": reference.keywords, "state": reference.state}
        order = {
            **exchange.share(given),
            "dtype": str(reference.dtype).removeprefix("torch."),
            "init_seed": reference.init_seed,
        }
        self._runner.send(FrameKind.CONSTRUCT, encode_tree(order))
        frame = self._dialogue.expect(FrameKind.READY)
        note = decode_tree(frame.body)
        self._profile["parameters"] = messages.parameters(note, len(reference.state))
        return matched(note, reference)

    def _stressed(self, calls: Trials | ReplayTrials, reference: Reference) -> bool:
        """Make the calls of the probe `stress`; returns whether the candidate ended in one."""
        found = StressTrials(self._runner, self._dialogue, self._settings, self._profile)
        try:
            return found.run(calls, reference)
        finally:
            known = (*self._findings, *found.findings)
            self._findings = (*known, *(finding for finding in calls.findings if finding not in known))
