"""One evaluation, from request to result: plan, runs, conclusion."""

from __future__ import annotations

import attrs
import torch

from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, Severity
from kernelrl_judge.device.faults import DeviceFull
from kernelrl_judge.judge.candidate_run import RunFacts, run_candidate, run_reference, run_with_kernels_off
from kernelrl_judge.judge.conclusion import conclude
from kernelrl_judge.judge.plan import CallKind, EvaluationPlan, KernelsOff, plan_evaluation
from kernelrl_judge.judge.resources import Loan, Resources
from kernelrl_judge.peer.nursery import ZygoteDied
from kernelrl_judge.peer.recordings import NotRecorded
from kernelrl_judge.protocol.device_memory import DeviceMemoryError

__all__ = ["evaluate", "run_without_candidate"]


def evaluate(request: EvaluationRequest, target: str, resources: Resources, *, alone: bool = False) -> Evaluation:
    """Evaluate one candidate.

    Args:
        target: `module:attribute` of the backend's `BackendRunner`.
        alone: no other evaluation of this evaluator is under way; those of other evaluators wait.

    Raises:
        TaskError: the task cannot be used.
        MissingPrerequisite: a GPU, a compiler or a clock is missing.
        DeviceFull: the GPU's memory does not suffice. Without `alone`, other evaluations may have taken it.
        DeviceFault: the GPU fails, or other programs have taken its memory.
        ZygoteDied, NotForked, BuildCrashed, Cancelled: there is no evaluation.
    """
    has_gpu = torch.cuda.is_available()
    setting = resources.zygotes.setting(target, request.backend_options, has_gpu)
    plan = plan_evaluation(request, setting, has_gpu=has_gpu)
    torch.set_num_threads(int(setting.environment["OMP_NUM_THREADS"]))
    with resources.lent(setting.device, replays=plan.first is CallKind.RECORDED, alone=alone) as loan:
        run, not_recorded = _run(request, plan, loan)
        if not alone:
            _require_undisturbed(run)
        kernels_off = None
        if _needs_kernels_off(plan, run, request, not_recorded):
            kernels_off = run_with_kernels_off(plan, loan)
    return conclude(request, plan, run, not_recorded, kernels_off)


def run_without_candidate(request: EvaluationRequest, target: str, resources: Resources) -> None:
    """Run what an evaluation runs in the judge, without its candidate: the sandbox starts, and the reference is called.

    Raises:
        What `evaluate` raises; `TaskError` if the reference fails.
    """
    has_gpu = torch.cuda.is_available()
    setting = resources.zygotes.setting(target, request.backend_options, has_gpu)
    plan = plan_evaluation(request, setting, has_gpu=has_gpu)
    torch.set_num_threads(int(setting.environment["OMP_NUM_THREADS"]))
    with resources.lent(setting.device, replays=False, alone=True) as loan:
        run_reference(request, plan, loan)


def _run(request: EvaluationRequest, plan: EvaluationPlan, loan: Loan) -> tuple[RunFacts, NotRecorded | None]:
    """The first run, and a second one with direct calls where calls cannot be recorded.

    Returns:
        The last run, and why calls cannot be recorded; None if they can.

    Raises:
        DeviceMemoryError: a recording needs more device memory than other evaluations leave.
    """
    run = _run_calls(request, plan, loan, plan.first, timing=plan.has_timing)
    not_recorded = run.not_recorded
    if not_recorded is None or plan.fallback is None:
        return run, None
    if not_recorded.lacks_memory and loan.leases is not None:
        raise DeviceMemoryError(f"{not_recorded.reason} (out of memory)") from not_recorded
    # If the reference cannot be recorded, both sides are timed by direct calls. A candidate that cannot be recorded is
    # not timed: its times would not be comparable with replays of the reference.
    timing = plan.has_timing and not_recorded.of_reference
    return _run_calls(request, plan, loan, plan.fallback, timing=timing), not_recorded


def _run_calls(
    request: EvaluationRequest, plan: EvaluationPlan, loan: Loan, calls: CallKind, *, timing: bool
) -> RunFacts:
    """One run, and a second one where the candidate ended in a call on harder inputs before all trials were made."""
    run = run_candidate(request, plan, loan, calls, timing=timing, kernels_off=False)
    if run.stress is None or not run.stress.ended_candidate or run.trials is not None:
        return run
    without_stress = attrs.evolve(plan, has_stress=False)
    trials_alone = run_candidate(request, without_stress, loan, calls, timing=False, kernels_off=False)
    return attrs.evolve(trials_alone, stress=run.stress)


def _require_undisturbed(run: RunFacts) -> None:
    """
    Raises:
        DeviceFull: other evaluations may have taken the device memory that the candidate lacks.
        ZygoteDied: other processes may have taken the memory for which the system killed the candidate.
    """
    if run.lacks_device_memory:
        raise DeviceFull("the candidate has too little device memory")
    if run.was_killed:
        raise ZygoteDied("SIGKILL ended a candidate: the machine may lack memory")


def _needs_kernels_off(
    plan: EvaluationPlan, run: RunFacts, request: EvaluationRequest, not_recorded: NotRecorded | None
) -> bool:
    """Whether the probe `no_op` follows: never after a recording, whose last replays had own kernels turned off."""
    if not run.is_correct or run.ownership is not None:
        return False
    if not run.launches and not request.kernels and request.kernels_complete:
        # There is nothing to turn off; the rule `no_kernel` applies.
        return False
    match plan.kernels_off.when:
        case KernelsOff.ALWAYS:
            return True
        case KernelsOff.NEVER:
            return False
    has_operators = bool(run.computing_operators)
    findings = run.trials.findings if run.trials is not None else ()
    has_suspicion = any(found.severity is Severity.SUSPECT for found in findings)
    fails_stress = run.stress is not None and run.stress.is_suspect(request.settings)
    is_not_recorded = not_recorded is not None and not not_recorded.of_reference
    return has_operators or has_suspicion or fails_stress or is_not_recorded
