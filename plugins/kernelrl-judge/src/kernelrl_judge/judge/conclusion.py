"""The evaluation of a candidate, made in one place from the facts of its runs."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from typing import Any

import attrs
import torch

from kernelrl_build.kernel_facts import hidden_facts
from kernelrl_build.service import target_archs
from kernelrl_core.api.evaluators import (
    BuildStatus,
    Evaluation,
    EvaluationFacts,
    EvaluationRequest,
    EvaluationSettings,
    Finding,
    Mismatch,
    Outcome,
    Severity,
    SourceFacts,
    describe_mismatch,
    sha256_text,
)
from kernelrl_judge.device.facts import machine_facts, no_gpu
from kernelrl_judge.findings import finding
from kernelrl_judge.judge import messages
from kernelrl_judge.judge.candidate_lines import crash_line, in_own_lines
from kernelrl_judge.judge.candidate_run import KernelsOffFacts, RunFacts
from kernelrl_judge.judge.plan import CallKind, EvaluationPlan
from kernelrl_judge.peer.channel import CandidateRaised
from kernelrl_judge.peer.nursery import Setting
from kernelrl_judge.peer.process import DeadlinePassed, RunnerEnded
from kernelrl_judge.peer.recordings import NotRecorded, ReplayFailed
from kernelrl_judge.probes.computing import computing_symbols
from kernelrl_judge.probes.families import FAMILIES
from kernelrl_judge.probes.stress import StressFailure, StressResults
from kernelrl_judge.protocol.failures import Failure, Phase
from kernelrl_judge.timing.statistics import WrongWindow

__all__ = ["conclude"]

_MAX_KERNELS = 4
"""Names of kernels in the evidence of a finding."""
_OTHER_WAYS = re.compile(
    r"\b(?:ctypes|cffi|numba|pycuda|cupyx|tilelang|cutlass|cuda\.bindings|_?nvrtc\w*|hiprtc\w*"
    r"|[cC]u(?:da)?(?:Module|Library)\w+|cuLaunch\w+|hipModule\w+|_cuda_load_module)\b"
)
"""Ways to launch kernels that cannot be turned off."""
_FAILURE_OUTCOMES = {
    "compile": Outcome.COMPILE_ERROR,
    "memory": Outcome.OUT_OF_MEMORY,
    "error": Outcome.RUNTIME_ERROR,
}


@attrs.frozen
class _Conclusion:
    """Outcome of a run, with its texts."""

    outcome: Outcome
    message: str
    detail: str = ""
    mismatch: Mismatch | None = None
    findings: tuple[Finding, ...] = ()


def conclude(
    request: EvaluationRequest,
    plan: EvaluationPlan,
    run: RunFacts,
    not_recorded: NotRecorded | None,
    kernels_off: KernelsOffFacts | None,
) -> Evaluation:
    """The evaluation of a candidate.

    Args:
        run: the last run with kernels on.
        not_recorded: why calls could not be recorded in the run before it.
        kernels_off: result of the probe `no_op`; None where it was not planned.
    """
    checked = _checked(request, plan, run)
    concluded = _concluded(run, request, checked)
    hidden = SourceFacts()
    findings = [*concluded.findings]
    if run.build_requests:
        hidden, hidden_findings = hidden_facts(request.source, run.build_requests, run.language)
        findings += hidden_findings
    not_timed = run.not_timed
    if not_recorded is not None and not not_recorded.of_reference:
        reported = _not_recorded_finding(not_recorded)
        findings.append(reported)
        if request.settings.timing and concluded.outcome is Outcome.CORRECT:
            not_timed = f"not_recorded: {reported.evidence}"
    seconds = dict(run.seconds)
    if kernels_off is not None:
        concluded, more = _with_kernels_off(concluded, kernels_off, run.launches, request, plan.setting)
        findings += more
        if kernels_off.run is not None:
            seconds["no_op"] = kernels_off.seconds
    timing = run.timing
    is_compile_error = concluded.outcome is Outcome.COMPILE_ERROR
    return Evaluation(
        outcome=concluded.outcome,
        message=concluded.message,
        detail=messages.log(concluded.detail or concluded.message, run.printed),
        build=BuildStatus.FAILED if is_compile_error else run.build,
        tests_passed=run.trials.passed if run.trials is not None else 0,
        tests_total=request.settings.trials,
        mismatch=concluded.mismatch,
        runtime=timing.runtime if timing is not None else None,
        baseline=timing.baseline if timing is not None else None,
        speedup=timing.speedup if timing is not None else None,
        speedup_ci=timing.speedup_ci if timing is not None else None,
        not_timed=not_timed,
        findings=tuple(findings),
        hidden=hidden,
        eager_speedup=timing.eager_speedup if timing is not None else None,
        kernels=run.kernels,
        own_kernel_share=run.ownership.own_kernel_share if run.ownership is not None else None,
        final=all(build.final for build in run.builds),
        checked=checked,
        facts=_facts(run, request.settings, not_recorded, kernels_off),
        isolation=run.isolation,
        provenance=_provenance(request, plan.setting, run),
        seconds=seconds,
    )


# --- one run --------------------------------------------------------------------------------------------------------


def _concluded(run: RunFacts, request: EvaluationRequest, checked: str) -> _Conclusion:
    if run.interruption is not None:
        return _interrupted(run.interruption, request, run)
    if run.trials is None:
        why = _why_not_run(request)
        return _Conclusion(Outcome.INFRA_ERROR, messages.compiled_only(checked, why))
    failure = run.trials.failure
    if failure is not None and failure.finding is not None:
        return _hacked(failure.finding, ())
    if failure is not None:
        mismatch = messages.explained(
            failure.mismatch, request.source, failure, has_random_reference=run.has_random_reference
        )
        message = describe_mismatch(mismatch)
        return _Conclusion(Outcome.INCORRECT, message, mismatch=mismatch)
    findings = run.trials.findings
    if run.stress is not None:
        findings = (*findings, *_stress_findings(run.stress, request.settings))
    if run.ownership is not None and run.ownership.decoy is not None:
        return _hacked(run.ownership.decoy, findings)
    limit = request.settings.excessive_speedup
    if run.timing is not None and limit is not None and run.timing.raw_speedup > limit:
        evidence = f"a speedup of {run.timing.raw_speedup:.1f}, above {limit:g}"
        findings = (*findings, finding("excessive_speedup", evidence))
    return _Conclusion(Outcome.CORRECT, "", findings=findings)


def _interrupted(interruption: Exception, request: EvaluationRequest, run: RunFacts) -> _Conclusion:
    """Outcome of a candidate that ended its run."""
    settings = request.settings
    match interruption:
        case DeadlinePassed():
            passed_trials = run.trials is not None and run.trials.failure is None
            return _Conclusion(Outcome.TIMEOUT, messages.timeout(settings.timeout_s, passed_trials=passed_trials))
        case RunnerEnded(how=how):
            line = crash_line(run.printed, request.source)
            return _Conclusion(_ended_outcome(how), messages.ended(how, line))
        case CandidateRaised(failure=failure):
            return _raised(failure, in_own_lines(failure.text, request.source, run.build_requests))
        case WrongWindow(mismatch=mismatch, finding=found, changed=changed):
            if found is not None:
                return _hacked(found, ())
            message = messages.incorrect_when_timed(mismatch, changed)
            return _Conclusion(Outcome.INCORRECT, message, mismatch=mismatch)
        case ReplayFailed(code=code):
            return _Conclusion(Outcome.RUNTIME_ERROR, messages.replay_failed(code), detail=str(interruption))
    reported = finding("protocol", f"forged or malformed reply: {interruption}")
    return _Conclusion(Outcome.HACKED, "The process sent a malformed reply.", findings=(reported,))


def _hacked(found: Finding, others: tuple[Finding, ...]) -> _Conclusion:
    message = messages.hacked(found)
    return _Conclusion(Outcome.HACKED, message, detail=found.evidence, findings=(*others, found))


def _raised(failure: Failure, text: str) -> _Conclusion:
    """Outcome of a candidate that raised an exception.

    Args:
        text: of the exception, in lines of the candidate's file.
    """
    is_of_device = "CUDA error" in failure.text or "HIP error" in failure.text
    if failure.phase is Phase.EXPORT and failure.kind == "error" and not is_of_device:
        actual = failure.text.partition(": ")[2][:200]
        mismatch = Mismatch("structure", "", expected="tensors", actual=actual)
        message = describe_mismatch(mismatch)
        return _Conclusion(Outcome.INCORRECT, message, detail=failure.text, mismatch=mismatch)
    outcome = _FAILURE_OUTCOMES.get(failure.kind, Outcome.RUNTIME_ERROR)
    if failure.phase is Phase.LOAD and outcome is Outcome.RUNTIME_ERROR:
        outcome = Outcome.COMPILE_ERROR
    return _Conclusion(outcome, messages.failure(failure, text), detail=text)


def _ended_outcome(how: str) -> Outcome:
    """Outcome of a process that ended without a failure message; see `RunnerEnded.how`."""
    if how == f"signal {int(signal.SIGXCPU)}":
        return Outcome.TIMEOUT
    return Outcome.OUT_OF_MEMORY if how == "memory" else Outcome.RUNTIME_ERROR


def _stress_findings(results: StressResults, settings: EvaluationSettings) -> tuple[Finding, ...]:
    findings = []
    if results.failure is not None and results.failure.rule in settings.probes:
        findings.append(_stress_failure(results.failure, settings))
    if results.is_imprecise(settings):
        evidence = (
            f"errors {results.error_ratio:.3g} times those of the reference against double precision: more than "
            f"{settings.min_precision} explains"
        )
        findings.append(finding("low_precision", evidence))
    return tuple(findings)


def _stress_failure(failure: StressFailure, settings: EvaluationSettings) -> Finding:
    is_sizes = failure.rule == "sizes"
    inputs = "inputs of other sizes" if is_sizes else f"harder inputs, family {failure.family}"
    kind = f" ({FAMILIES[failure.family]})" if failure.family in FAMILIES else ""
    evidence = f"right in every trial, wrong on {inputs}{kind}: {_stress_cause(failure, settings).rstrip('.')}"
    if failure.is_within_range:
        return finding(failure.rule, evidence)
    beyond = "; these inputs are beyond the range that the task draws"
    return finding(failure.rule, evidence + beyond, severity=Severity.NOTE)


def _stress_cause(failure: StressFailure, settings: EvaluationSettings) -> str:
    match failure.cause:
        case Mismatch() as mismatch:
            return describe_mismatch(mismatch).replace("\n", " ")
        case CandidateRaised(failure=raised):
            return messages.failure(raised)
        case DeadlinePassed():
            return messages.timeout(settings.timeout_s)
        case RunnerEnded(how=how):
            return messages.ended(how)


# --- compiled and not executed --------------------------------------------------------------------------------------


def _checked(request: EvaluationRequest, plan: EvaluationPlan, run: RunFacts) -> str:
    """Names of compiled kernels, or the reason why nothing was checked; empty where the candidate was executed."""
    if plan.first is not CallKind.NONE or run.interruption is not None:
        return ""
    if run.compiled:
        return run.compiled
    toolchain = plan.setting.backend.toolchain(request.backend_options, plan.setting.mode)
    if toolchain is not None and not run.build_requests:
        return "nothing was compiled while the module was loaded"
    unchecked = [build.reason for build in run.builds if build.route == "unchecked"]
    if unchecked:
        return f"nothing was checked: the device code needs torch's headers for the GPU here ({unchecked[0]})"
    targets = ", ".join(target_archs(toolchain)) if toolchain is not None else ""
    return f"device code compiled for {targets}; the host part was not"


def _why_not_run(request: EvaluationRequest) -> str:
    if request.backend_options.get("mode") == "compile":
        return "backend.mode is compile"
    if torch.cuda.is_available():
        return f"the GPU of this machine is not one for backend {request.backend}"
    return no_gpu()[0]


# --- facts of several runs ------------------------------------------------------------------------------------------


def _not_recorded_finding(not_recorded: NotRecorded) -> Finding:
    place = f"candidate.py:{not_recorded.line}: " if not_recorded.line else ""
    return finding("not_recorded", f"{place}{not_recorded.reason}")


def _with_kernels_off(
    concluded: _Conclusion,
    kernels_off: KernelsOffFacts,
    launches: tuple[str, ...] | None,
    request: EvaluationRequest,
    setting: Setting,
) -> tuple[_Conclusion, tuple[Finding, ...]]:
    """The conclusion after the probe `no_op`, and its findings.

    Args:
        launches: the kernels that ran; None where they were not observed.
    """
    if kernels_off.not_tried and kernels_off.is_needed:
        evidence = f"it is not known whether the output needs the kernels: {kernels_off.not_tried}"
        return concluded, (finding("decoy_kernels", evidence, severity=Severity.SUSPECT),)
    is_right = kernels_off.run is not None and kernels_off.run.is_correct
    if not is_right or kernels_off.needs_no_computation:
        return concluded, ()
    evidence = f"the output is right although {_named(launches or request.kernels)} did nothing but copy"
    other_way = _OTHER_WAYS.search(request.source) if setting.mode == "gpu" else None
    if other_way is not None:
        evidence += f"; kernels may have been launched through {other_way.group()}"
        return concluded, (finding("decoy_kernels", evidence, severity=Severity.SUSPECT),)
    decoy = finding("decoy_kernels", evidence)
    return attrs.evolve(concluded, outcome=Outcome.HACKED, message=messages.hacked(decoy), detail=evidence), (decoy,)


def _named(kernels: tuple[str, ...]) -> str:
    if not kernels:
        return "its kernels"
    return ", ".join(kernels[:_MAX_KERNELS]) + (", …" if len(kernels) > _MAX_KERNELS else "")


def _facts(
    run: RunFacts,
    settings: EvaluationSettings,
    not_recorded: NotRecorded | None,
    kernels_off: KernelsOffFacts | None,
) -> EvaluationFacts:
    ownership, stress, timing = run.ownership, run.stress, run.timing
    of_reference = not_recorded is not None and not_recorded.of_reference
    return EvaluationFacts(
        cast=settings.cast or "",
        dtypes=run.dtypes,
        phases_s=run.phases_s,
        builds=run.builds,
        parameters=run.parameters,
        computing_operators=run.computing_operators,
        launches=run.launches,
        library_symbols=tuple(computing_symbols(run.library_symbols)),
        stress=_stress_text(stress) if stress is not None else "",
        stress_left="; ".join(stress.inapplicable) if stress is not None else "",
        not_covered="; ".join(run.trials.not_covered) if run.trials is not None else "",
        error_ratio=round(stress.error_ratio, 2) if stress is not None and stress.error_ratio is not None else None,
        no_op=_kernels_off_text(kernels_off) if kernels_off is not None else "",
        device_kernels=ownership.device_kernels if ownership is not None else (),
        library_kernels=ownership.library_kernels if ownership is not None else (),
        library_kernel_share=ownership.library_kernel_share if ownership is not None else None,
        timing=timing.facts if timing is not None else None,
        direct_because=not_recorded.reason if not_recorded is not None and of_reference else "",
        roofline=timing.roofline if timing is not None else None,
    )


def _stress_text(results: StressResults) -> str:
    if results.undecided_family:
        return f"not decided: {results.undecided_family} needs more memory than the reference leaves"
    if results.failure is not None:
        return "failed"
    return "passed" if results.n_calls else "not tried"


def _kernels_off_text(kernels_off: KernelsOffFacts) -> str:
    if kernels_off.not_tried:
        return f"not tried: {kernels_off.not_tried}"
    assert kernels_off.run is not None
    if kernels_off.run.is_correct and kernels_off.needs_no_computation:
        return "not tried: the expected output is constant, or one of the inputs"
    return _concluded(kernels_off.run, kernels_off.request, "").outcome.value


def _provenance(request: EvaluationRequest, setting: Setting, run: RunFacts) -> Mapping[str, Any]:
    provenance: dict[str, Any] = {
        **machine_facts(setting.device),
        "mode": setting.mode,
        "device": setting.device,
        "task_sha256": request.task_sha256,
    }
    if request.package:
        provenance["package_sha256"] = sha256_text(json.dumps(dict(request.package), sort_keys=True))
    if run.sizes:
        provenance["sizes"] = dict(run.sizes)
    return provenance
