"""The probe `no_op`: does the output depend on what the candidate's kernels compute?

A correct candidate is called once more, in a new runner, with poisoned memory and kernels that do nothing but copy
(`runner.disabling`, and `build.emptying` for extensions). If the output is right all the same, a library computed it,
and the kernels are decoys.

It does not find a candidate that looks at the results of its kernels, and a kernel that does a small part of the work.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, Outcome, Severity
from kernelrl_judge.probes import messages
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.task.reference import Trial

__all__ = ["concluded", "probe_request", "why_not"]

_LIMIT_S = 20.0
_OTHER_WAYS = re.compile(
    r"\b(?:ctypes|cffi|numba|pycuda|cupyx|tilelang|cutlass|cuda\.bindings|_?nvrtc\w*|hiprtc\w*"
    r"|[cC]u(?:da)?(?:Module|Library)\w+|cuLaunch\w+|hipModule\w+|_cuda_load_module)\b"
)


def why_not(request: EvaluationRequest, evaluation: Evaluation, backend: Any, mode: str) -> str | None:
    """Why a candidate is not probed: a reason to tell of, empty text for none; None if it is."""
    settings = request.settings
    if evaluation.outcome is not Outcome.CORRECT or settings.profile != "strict" or "no_op" not in settings.probes:
        return ""
    # On a device the probe takes a context and a build, in the interpreter a fifth of the whole. Where the operators of
    # torch are listed in every call, something must speak against a candidate first.
    always = mode == "cpu" or (mode == "interpreter" and "operators" not in settings.probes)
    suspect = request.suspect_rules or evaluation.profile.get("computing_operators")
    doubts = (found.severity is Severity.SUSPECT or found.rule == "not_recorded" for found in evaluation.findings)
    if not (always or suspect or any(doubts)):
        return ""
    if not request.kernels and request.kernels_complete:
        return "no kernel was found in the source"
    if not backend.disables_kernels:
        return f"backend {request.backend} cannot disable kernels"
    return None


def probe_request(request: EvaluationRequest) -> EvaluationRequest:
    """The same candidate on the inputs of one trial, not timed."""
    settings = attrs.evolve(
        request.settings, trials=1, timing=False, timeout_s=min(request.settings.timeout_s, _LIMIT_S)
    )
    return attrs.evolve(request, settings=settings)


def concluded(request: EvaluationRequest, evaluation: Evaluation, without: Evaluation, trial: Trial) -> Evaluation:
    """The verdict, after the candidate was judged `without` its kernels, on the inputs of a trial."""
    profile = {**evaluation.profile, "no_op": without.outcome.value}
    if without.outcome is not Outcome.CORRECT:
        return attrs.evolve(evaluation, profile=profile)
    if trial.comes_by_itself:
        reason = "not tried: the expected output is constant, or one of the inputs"
        return attrs.evolve(evaluation, profile={**profile, "no_op": reason})
    named = ", ".join(request.kernels[:4]) + (", …" if len(request.kernels) > 4 else "")
    evidence = f"the output is right although {named} did nothing but copy"
    other = _OTHER_WAYS.search(request.source) if evaluation.provenance["mode"] == "gpu" else None
    if other is not None:
        evidence += f"; kernels may have been launched through {other.group()}"
        reported = finding("decoy_kernels", evidence, severity=Severity.SUSPECT)
        return attrs.evolve(evaluation, findings=(*evaluation.findings, reported), profile=profile)
    reported = finding("decoy_kernels", evidence)
    return attrs.evolve(
        evaluation,
        outcome=Outcome.HACKED,
        message=messages.hacked(reported),
        detail=f"{evaluation.detail}\n{evidence}".strip(),
        findings=(*evaluation.findings, reported),
        profile=profile,
    )
