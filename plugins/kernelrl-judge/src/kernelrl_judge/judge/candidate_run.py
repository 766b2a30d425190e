"""The phases of one candidate in one runner, in their order, and the facts that they return."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

from kernelrl_build.lexing import Unreadable
from kernelrl_core.api.evaluators import (
    BuildStatus,
    CompiledKernel,
    EvaluationRequest,
    ExtensionBuild,
    Isolation,
    TaskDtypes,
)
from kernelrl_judge.judge.plan import CallKind, EvaluationPlan
from kernelrl_judge.judge.resources import MEMORY_ERRORS, Loan
from kernelrl_judge.peer.builds import CandidateBuilds
from kernelrl_judge.peer.channel import CandidateRaised
from kernelrl_judge.peer.lease import CandidateLease
from kernelrl_judge.peer.nursery import ZygoteDied
from kernelrl_judge.peer.process import DeadlinePassed, RunnerEnded
from kernelrl_judge.peer.recordings import CandidateRecordings, NotRecorded, ReplayFailed
from kernelrl_judge.peer.session import RunnerSession
from kernelrl_judge.probes.checked_calls import CheckedCalls
from kernelrl_judge.probes.ownership import Ownership, measure_ownership
from kernelrl_judge.probes.stress import StressResults
from kernelrl_judge.probes.stress_calls import compare_stressed, stress_calls
from kernelrl_judge.probes.trials import TrialResults
from kernelrl_judge.protocol.device_memory import give_back_spare
from kernelrl_judge.protocol.failures import lacks_device_memory
from kernelrl_judge.protocol.frames import ProtocolError
from kernelrl_judge.replay.capture import Recorder
from kernelrl_judge.task.comparison import tolerance
from kernelrl_judge.task.coverage import measured_coverage
from kernelrl_judge.task.drawn_parameters import ParameterDraws, drawn_parameters
from kernelrl_judge.task.parameter_match import ParameterMatch
from kernelrl_judge.task.reference import Reference, TaskFacts
from kernelrl_judge.task.reference_budget import ReferenceBudget
from kernelrl_judge.task.repeatability import draws_random_numbers
from kernelrl_judge.timing.measure import (
    MeasuredWindows,
    Measurement,
    TimingResults,
    direct_measurement,
    measure,
    timing_results,
)
from kernelrl_judge.timing.roofline import count_work
from kernelrl_judge.timing.statistics import NotTimed, WrongWindow

if TYPE_CHECKING:
    # Each evaluation needs one of the two.
    from kernelrl_judge.probes.direct_trials import DirectTrials
    from kernelrl_judge.probes.replay_trials import ReplayTrials

__all__ = ["Interruption", "KernelsOffFacts", "RunFacts", "run_candidate", "run_reference", "run_with_kernels_off"]

Interruption = CandidateRaised | DeadlinePassed | RunnerEnded | WrongWindow | ReplayFailed | NotRecorded | ProtocolError
"""Exceptions of the candidate's making that end a run."""
_INTERRUPTIONS = (CandidateRaised, DeadlinePassed, RunnerEnded, WrongWindow, ReplayFailed, NotRecorded, ProtocolError)


@attrs.frozen
class RunFacts:
    """Facts of one candidate in one runner. Those of a phase that was not reached are None."""

    interruption: Interruption | None
    """The exception that ended the run; None if the last phase was reached or a result made further ones needless."""
    not_recorded: NotRecorded | None
    """The same exception, if it is that calls cannot be recorded."""
    is_correct: bool
    """Whether all trials passed and nothing shows a hack."""
    was_killed: bool
    """Whether SIGKILL ended the candidate."""
    lacks_device_memory: bool
    """Whether the candidate ended because the device has too little memory."""
    isolation: Isolation
    build: BuildStatus
    compiled: str
    """Names of the kernels that mode `compile` compiled."""
    trials: TrialResults | None
    """None also where the candidate ended in a call on harder inputs before all trials were made."""
    stress: StressResults | None
    timing: TimingResults | None
    not_timed: str
    """Why a correct candidate was not timed although the plan has timing."""
    ownership: Ownership | None
    parameters: str
    """How the candidate's parameters were matched."""
    computing_operators: tuple[str, ...] | None
    """Operators of torch or kernels of libraries that computed; None where none were looked for."""
    launches: tuple[str, ...] | None
    """Own kernels that calls launched; None where that was not observed."""
    builds: tuple[ExtensionBuild, ...]
    build_requests: tuple[bytes, ...]
    kernels: tuple[CompiledKernel, ...]
    library_symbols: tuple[str, ...]
    language: str
    """Language of the extensions' device code; empty where the backend builds none."""
    sizes: Mapping[str, int]
    """Sizes of the task that were made smaller to fit the memory, by name."""
    dtypes: TaskDtypes | None
    """Dtypes of the task; None if the reference was not called."""
    has_random_reference: bool
    """Whether a trial failed and the outputs of the reference depend on random numbers."""
    printed: str
    """Output that the candidate printed."""
    phases_s: Mapping[str, float]
    """Wall time of each phase."""
    seconds: Mapping[str, float]
    """Wall time of build, run, timing, and waiting for the device."""


@attrs.frozen
class KernelsOffFacts:
    """Facts of the probe `no_op`: a run in which the candidate's kernels only copied."""

    request: EvaluationRequest
    """Request of that run."""
    run: RunFacts | None = None
    needs_no_computation: bool = False
    """Whether the expected output is constant or an input, so that it may be right without kernels."""
    not_tried: str = ""
    """Why there was no run; empty if there was one."""
    is_needed: bool = False
    """Whether a candidate without such a run is not clean: its kernels cannot be disabled. False where memory lacks."""
    seconds: float = 0.0
    """Wall time of that run."""


def run_candidate(
    request: EvaluationRequest, plan: EvaluationPlan, loan: Loan, calls: CallKind, *, timing: bool, kernels_off: bool
) -> RunFacts:
    """Execute one candidate in a runner of its own.

    Args:
        calls: how it is called.
        timing: measure times after the trials.
        kernels_off: have the candidate's kernels only copy, and make the trials alone.

    Raises:
        TaskError: the task cannot be used.
        kernelrl_build.lexing.Unreadable: kernels are off, and it is not certain that they would only copy.
        MissingPrerequisite, Cancelled, ZygoteDied, NotForked, BuildCrashed and errors of the judge's own device.
    """
    setting = plan.setting
    device = setting.device
    # Kernels are off in a last runner with a time limit of its own.
    starts_next = loan.has_room and not kernels_off
    with loan.runners.runner(setting, request.settings, starts_next=starts_next) as process:
        lease = CandidateLease(process, loan.leases, device, loan.report_slow)
        toolchain = setting.backend.toolchain(request.backend_options, setting.mode)
        builds = CandidateBuilds(loan.main_process, request, toolchain, kernels_off)
        session = RunnerSession(process, lease, builds, device)
        run = _CandidateRun(request, plan, loan, session, timing=timing, kernels_off=kernels_off)
        interruption: Interruption | None = None
        try:
            run.execute(calls)
        except _INTERRUPTIONS as raised:
            interruption = raised
        ended_at = time.monotonic()
    return run.facts(interruption, ended_at)


def run_with_kernels_off(plan: EvaluationPlan, loan: Loan) -> KernelsOffFacts:
    """Make the probe `no_op` of direct calls, where the plan says that it is possible.

    Raises:
        What `run_candidate` raises, except `Unreadable`.
    """
    planned = plan.kernels_off
    request = planned.request
    if planned.impossible:
        return KernelsOffFacts(request, not_tried=planned.impossible, is_needed=True)
    started = time.monotonic()
    device = plan.setting.device
    calls = plan.fallback or plan.first
    try:
        run = run_candidate(request, plan, loan, calls, timing=False, kernels_off=True)
        trial = loan.references.get(request, device).trial(0)
    except Unreadable as error:
        return KernelsOffFacts(request, not_tried=str(error), is_needed=True)
    except MEMORY_ERRORS as error:
        if device != "cuda" or not lacks_device_memory(str(error)):
            raise
        return KernelsOffFacts(request, not_tried="the device has no memory left")
    seconds = time.monotonic() - started
    return KernelsOffFacts(request, run, needs_no_computation=trial.needs_no_computation, seconds=seconds)


def run_reference(request: EvaluationRequest, plan: EvaluationPlan, loan: Loan) -> None:
    """Start a runner that gets no candidate, and make the calls of the reference that a run with a candidate makes.

    Raises:
        TaskError: the task cannot be used.
        RunnerEnded, DeadlinePassed, ProtocolError: the runner does not start.
        MissingPrerequisite, Cancelled, ZygoteDied, NotForked and errors of the judge's own device.
    """
    settings, device = request.settings, plan.setting.device
    zygote = loan.zygotes.zygote(plan.setting)
    with loan.runners.runner(plan.setting, settings, starts_next=False) as process:
        lease = CandidateLease(process, loan.leases, device, loan.report_slow)
        builds = CandidateBuilds(loan.main_process, request, None, False)
        RunnerSession(process, lease, builds, device).start(settings)
    if plan.first is CallKind.NONE:
        return
    reference = loan.references.get(request, device)
    measured_coverage(reference, ReferenceBudget.of(reference).regions)
    trials = [reference.trial(index) for index in range(settings.trials)]
    drawn_parameters(reference, ParameterMatch()).reference.expected(trials[0].inputs)
    if plan.has_stress:
        for call in stress_calls(reference, []):
            compare_stressed(call, call.expected)
    if plan.has_timing:
        count_work(reference)
    if not zygote.alive:
        raise ZygoteDied("the zygote ended under the reference")


class _CandidateRun:
    """Collects what the phases return. Each phase is one method, called once."""

    def __init__(
        self,
        request: EvaluationRequest,
        plan: EvaluationPlan,
        loan: Loan,
        session: RunnerSession,
        *,
        timing: bool,
        kernels_off: bool,
    ) -> None:
        self._request = request
        self._settings = request.settings
        self._plan = plan
        self._loan = loan
        self._session = session
        self._timing_planned = timing
        self._kernels_off = kernels_off
        self._started_at = time.monotonic()
        self._loaded_after_s = 0.0
        self._phases_s: dict[str, float] = {}
        self._isolation = Isolation()
        self._build = BuildStatus.NOT_REACHED
        self._compiled = ""
        self._sizes: Mapping[str, int] = {}
        self._task_facts = TaskFacts()
        self._has_random_reference = False
        self._trials: TrialResults | None = None
        self._stress: StressResults | None = None
        self._timing: TimingResults | None = None
        self._not_timed = ""
        self._ownership: Ownership | None = None
        self._computing_operators: tuple[str, ...] | None = None
        self._launches: tuple[str, ...] | None = None

    def execute(self, calls: CallKind) -> None:
        """All phases, in their order.

        Raises:
            `Interruption`: the candidate ended the run.
        """
        with self._phase("start"):
            self._isolation = self._session.start(self._settings)
        with self._phase("load"):
            self._load()
        match calls:
            case CallKind.NONE:
                return
            case CallKind.RECORDED:
                self._call_recorded()
            case CallKind.DIRECT:
                self._call_directly()

    def facts(self, interruption: Interruption | None, ended_at: float) -> RunFacts:
        """The facts of this run.

        Args:
            ended_at: on the clock `time.monotonic`.
        """
        session = self._session
        builds = session.builds
        ownership = self._ownership
        return RunFacts(
            interruption=interruption,
            not_recorded=interruption if isinstance(interruption, NotRecorded) else None,
            is_correct=interruption is None and self._passes(),
            was_killed=isinstance(interruption, RunnerEnded) and interruption.was_killed,
            lacks_device_memory=session.device == "cuda" and _lacks_device_memory(interruption),
            isolation=self._isolation,
            build=self._build,
            compiled=self._compiled,
            trials=self._trials,
            stress=self._stress,
            timing=self._timing,
            not_timed=self._not_timed,
            ownership=ownership,
            parameters=session.parameters,
            computing_operators=self._computing_operators if ownership is None else ownership.computing_operators,
            launches=self._launches if ownership is None else ownership.launches,
            builds=builds.builds,
            build_requests=tuple(builds.requests),
            kernels=builds.kernels,
            # The nodes of a recording show more than the symbols that an extension is linked to.
            library_symbols=builds.library_symbols if ownership is None else (),
            language=builds.language,
            sizes=self._sizes,
            dtypes=self._task_facts.dtypes,
            has_random_reference=self._has_random_reference,
            printed=session.process.printed,
            phases_s=dict(self._phases_s),
            seconds=self._seconds(ended_at),
        )

    def _passes(self) -> bool:
        """Whether all trials passed and own kernels are no decoys."""
        if self._trials is None or self._trials.failure is not None:
            return False
        return self._ownership is None or self._ownership.decoy is None

    def _seconds(self, ended_at: float) -> dict[str, float]:
        whole_s = ended_at - self._started_at
        build_s = max(self._session.builds.seconds, self._loaded_after_s)
        timing_s = self._phases_s.get("timing", 0.0)
        wait_s = self._session.lease.waited_s
        run_s = max(0.0, whole_s - build_s - wait_s - timing_s)
        return {"build": build_s, "run": run_s, "timing": timing_s, "wait": wait_s}

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Measure the wall time of a phase, including its builds."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._phases_s[name] = round(time.monotonic() - started, 4)

    # --- phases -----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        request = self._request
        try:
            self._compiled = self._session.load(
                request.source,
                request.backend_options,
                package=request.package,
                builds=bool(self._session.builds.language),
                kernels_off=self._kernels_off,
            )
        except CandidateRaised:
            self._build = BuildStatus.FAILED
            raise
        self._build = BuildStatus.BUILT
        self._loaded_after_s = time.monotonic() - self._started_at
        # An earlier runner of this judge may still use the device memory that this one shares now.
        self._loan.runners.settle()

    def _call_directly(self) -> None:
        from kernelrl_judge.probes.direct_trials import DirectTrials

        session, settings = self._session, self._settings
        with session.lease.held(alone=False):
            reference = self._reference()
            mode, source = self._plan.setting.mode, self._request.source
            trials = DirectTrials(session, settings, mode, source, has_kernels=not self._kernels_off)
            draws = self._check(trials, reference)
            self._computing_operators = trials.computing_operators
            self._launches = trials.launches
            if self._trials_failed or self._kernels_off or self._has_ended or not self._timing_planned:
                return
            count_work(draws.reference)
        measured = self._measure(draws.reference, direct_measurement(session, draws))
        if measured is not None:
            self._timing = timing_results(session, draws.reference, self._request, measured, None)

    def _call_recorded(self) -> None:
        from kernelrl_judge.probes.replay_trials import ReplayTrials

        session, settings = self._session, self._settings
        recorder = self._loan.recorder
        assert recorder is not None
        with session.lease.held(alone=False):
            reference = self._reference()
            exchange = session.device_exchange
            if exchange is None:
                raise NotRecorded("this GPU cannot share memory between processes", of_reference=True)
            recordings = CandidateRecordings(session, exchange)
            trials = ReplayTrials(session, recordings, settings)
            draws = self._check(trials, reference)
            if self._trials_failed or self._has_ended:
                return
            measurement = None
            if self._timing_planned:
                measurement = self._prepare_windows(recorder, recordings, trials, draws)
            else:
                trials.record_task(draws.reference)
        measured = None if measurement is None else self._measure(draws.reference, measurement)
        with session.lease.held(alone=False), self._phase("ownership"):
            self._ownership = measure_ownership(recordings, draws.reference, recorder, tolerance(settings))
        if measured is not None and self._ownership.decoy is None:
            self._timing = timing_results(session, draws.reference, self._request, measured, recorder)

    def _check(self, calls: DirectTrials | ReplayTrials, reference: Reference) -> ParameterDraws:
        """The calls whose outputs are compared."""
        has_stress = self._plan.has_stress and not self._kernels_off
        checked = CheckedCalls(self._session, calls, reference, has_stress)
        with self._phase("trials"):
            draws = checked.run()
        self._stress = checked.stress
        self._trials = checked.trials
        self._check_reference(draws.reference)
        return draws

    @property
    def _trials_failed(self) -> bool:
        return self._trials is not None and self._trials.failure is not None

    @property
    def _has_ended(self) -> bool:
        """Whether the candidate's process ended in a call on harder inputs."""
        return self._stress is not None and self._stress.ended_candidate

    def _reference(self) -> Reference:
        with self._phase("reference"):
            reference = self._loan.references.get(self._request, self._session.device)
            # Alone, an evaluation does without what does not fit into the memory.
            reference.facts.shares_memory = self._loan.leases is not None
            self._sizes = dict(reference.sizes)
            self._task_facts = reference.facts
            if self._loan.arenas is not None:
                self._session.share_device_memory(self._loan.arenas)
            return reference

    def _check_reference(self, reference: Reference) -> None:
        """After wrong values, find out whether the reference itself gives the same values again.

        Raises:
            TaskError: it does not, although the random state is the same.
        """
        failure = self._trials.failure if self._trials is not None else None
        if failure is not None and failure.mismatch.kind in ("values", "non_finite"):
            self._has_random_reference = draws_random_numbers(reference, tolerance(self._settings))

    def _prepare_windows(
        self, recorder: Recorder, recordings: CandidateRecordings, trials: ReplayTrials, draws: ParameterDraws
    ) -> Measurement:
        from kernelrl_judge.timing.replay_measurement import ReplayMeasurement

        count_work(draws.reference)
        measurement = ReplayMeasurement(
            recorder,
            self._session,
            recordings,
            draws,
            statistics.median(trials.call_us),
            keeps_parameters=trials.records_each_call,
        )
        with self._phase("lengths"):
            measurement.prepare()
        return measurement

    def _measure(self, reference: Reference, measurement: Measurement) -> MeasuredWindows | None:
        """The timing phase; None where the times cannot be trusted."""
        session = self._session
        measured: MeasuredWindows | None = None
        with session.lease.held(alone=True), self._phase("timing"):
            try:
                measured = measure(session, reference, measurement)
            except NotTimed as reason:
                self._not_timed = str(reason)
        if session.device == "cuda":
            # Windows of large tensors take gigabytes, which the next judge needs.
            give_back_spare()
        return measured


def _lacks_device_memory(interruption: Interruption | None) -> bool:
    """Whether the candidate raised because the device, and not the host, has too little memory."""
    if not isinstance(interruption, CandidateRaised):
        return False
    failure = interruption.failure
    is_of_host = failure.name == "MemoryError" or "bad_alloc" in failure.text
    return failure.kind == "memory" and not is_of_host
