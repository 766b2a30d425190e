"""The plan of one evaluation, known at its start: how calls are made, and which runners it needs."""

from __future__ import annotations

from enum import Enum

import attrs
import torch

from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_core.api.evaluators import EvaluationRequest
from kernelrl_judge.backend import UNTIMED
from kernelrl_judge.device.facts import no_gpu
from kernelrl_judge.peer.nursery import Setting
from kernelrl_judge.probes import stress_calls

__all__ = ["CallKind", "EvaluationPlan", "KernelsOff", "KernelsOffPlan", "plan_evaluation"]

_KERNELS_OFF_TIMEOUT_S = 20.0


class CallKind(Enum):
    """How a runner calls the candidate."""

    NONE = "none"
    """Mode `compile`: kernels are compiled and not executed."""
    RECORDED = "recorded"
    """Calls are recorded once and replayed. Own kernels are turned off in the last replays."""
    DIRECT = "direct"
    """Each call is made by the runner."""


class KernelsOff(Enum):
    """Whether a second runner, in which the candidate's kernels only copy, follows correct direct calls."""

    ALWAYS = "always"
    IF_DOUBTFUL = "if doubtful"
    """If a finding or an operator of torch speaks against the candidate."""
    NEVER = "never"


@attrs.frozen
class KernelsOffPlan:
    """The probe `no_op` of direct calls.

    A correct candidate is called once more, in a new runner, with poisoned memory and kernels that only copy. If the
    output is right again, a library computed it, and the kernels are decoys. The probe misses a candidate that looks at
    the results of its kernels, and a kernel that does a small part of the work.
    """

    when: KernelsOff
    request: EvaluationRequest
    """Request of that run: one trial, not timed."""
    impossible: str = ""
    """Why kernels cannot be turned off; empty if they can."""


@attrs.frozen
class EvaluationPlan:
    """The runners of an evaluation."""

    setting: Setting
    first: CallKind
    """Calls of the first runner."""
    fallback: CallKind | None
    """Calls of a second runner, where calls cannot be recorded; None where the first one records nothing."""
    has_stress: bool
    """Whether harder inputs follow the trials."""
    has_timing: bool
    """Whether windows follow the harder inputs."""
    kernels_off: KernelsOffPlan


def plan_evaluation(request: EvaluationRequest, setting: Setting, *, has_gpu: bool) -> EvaluationPlan:
    """The plan of an evaluation.

    Raises:
        MissingPrerequisite: this machine has no GPU for the backend, or cannot time it.
    """
    if setting.mode == "gpu" and not has_gpu:
        reason, fix = no_gpu()
        raise MissingPrerequisite(f"backend {request.backend} needs a GPU: {reason}", fix=fix)
    settings = request.settings
    if settings.timing and setting.mode in UNTIMED:
        raise MissingPrerequisite(
            f"backend {request.backend} cannot be timed here: {UNTIMED[setting.mode]}",
            fix="set evaluation.timing=false, or use a machine with a GPU",
        )
    first = _first_calls(request, setting)
    return EvaluationPlan(
        setting=setting,
        first=first,
        fallback=CallKind.DIRECT if first is CallKind.RECORDED else None,
        has_stress=stress_calls.is_enabled(settings),
        has_timing=settings.timing,
        kernels_off=_kernels_off(request, setting),
    )


def _first_calls(request: EvaluationRequest, setting: Setting) -> CallKind:
    if setting.mode == "compile":
        return CallKind.NONE
    can_replay = setting.device == "cuda" and not torch.version.hip
    return CallKind.RECORDED if can_replay and request.settings.timing_method == "replay" else CallKind.DIRECT


def _kernels_off(request: EvaluationRequest, setting: Setting) -> KernelsOffPlan:
    settings = request.settings
    timeout_s = min(settings.timeout_s, _KERNELS_OFF_TIMEOUT_S)
    one_trial = attrs.evolve(settings, trials=1, timing=False, timeout_s=timeout_s)
    run_request = attrs.evolve(request, settings=one_trial)
    if settings.profile != "strict" or "no_op" not in settings.probes:
        return KernelsOffPlan(KernelsOff.NEVER, run_request)
    # The probe costs a context and a build on a GPU, and a fifth of an evaluation in the interpreter. Where operators
    # of torch are listed in every call, something must speak against a candidate first.
    is_cheap = setting.mode == "cpu"
    is_unlisted = setting.mode == "interpreter" and "operators" not in settings.probes
    is_always = is_cheap or is_unlisted or bool(request.suspect_rules)
    impossible = "" if setting.backend.disables_kernels else f"backend {request.backend} cannot disable kernels"
    return KernelsOffPlan(KernelsOff.ALWAYS if is_always else KernelsOff.IF_DOUBTFUL, run_request, impossible)
