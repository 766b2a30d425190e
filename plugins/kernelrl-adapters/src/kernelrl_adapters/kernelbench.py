"""KernelBench's `eval_kernel_against_ref` by the evaluator of kernelrl: equal arguments, equal fields of the result.

    from kernelrl_adapters.kernelbench import eval_kernel_against_ref    # was: from kernelbench.eval import …

Kernels are executed in the runner of the evaluator and not in the calling process. Outcomes are those of `kernelrl
check`: a kernel that breaks a stated rule, or that is found to be a hack, is not correct.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs

from kernelrl_adapters.shared import in_background, shared
from kernelrl_core.api.episodes import (
    DEFAULT_EVALUATION,
    CandidateEvaluator,
    EvaluationSpec,
    Turn,
    evaluate_kernel,
    read_evaluation_spec,
    registry,
    why_untimed,
    with_timing,
)
from kernelrl_core.api.errors import MissingPrerequisite, UsageError, suggestion
from kernelrl_core.api.evaluators import Evaluator, Outcome, RuntimeStatistics, Task
from kernelrl_core.api.tasks import parse_task_source

__all__ = ["KernelExecResult", "eval_kernel_against_ref"]

_log = logging.getLogger(__name__)
_UNMEASURED = -1.0
_PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "fp32": "fp32", "fp16": "fp16", "bf16": "bf16"}
_TIMING_METHODS = ("cuda_event", "do_bench", "do_bench_impl", "host_time")


@attrs.define
class KernelExecResult:
    """The result of an evaluation, with the fields of KernelBench's class of this name."""

    compiled: bool = False
    """The build succeeded. False also where a stated rule rejects the source before it is built."""
    correctness: bool = False
    """The outcome is `correct`."""
    metadata: dict[str, Any] = attrs.field(factory=dict)
    """Plain data: `hardware` and `device`; KernelBench's keys for errors and differences; and `outcome`, `verdict`,
    `findings`, `message`, `speedup`, `isolation` of the evaluation."""
    runtime: float = _UNMEASURED
    """Median run time in milliseconds, the unit in which KernelBench measures; -1: not measured."""
    runtime_stats: dict[str, Any] = attrs.field(factory=dict)
    """`mean` (the median), `p10`, `p90` in milliseconds, `num_trials`, `hardware`, `device`; empty: not measured."""
    ref_runtime: float = _UNMEASURED
    """Median run time of PyTorch eager, measured beside that of the kernel."""
    ref_runtime_stats: dict[str, Any] = attrs.field(factory=dict)
    """As `runtime_stats`, of PyTorch eager."""


def eval_kernel_against_ref(
    original_model_src: str,
    custom_model_src: str,
    seed_num: int = 42,
    num_correct_trials: int = 1,
    num_perf_trials: int = 10,
    measure_performance: bool = False,
    timing_method: str = "cuda_event",
    verbose: bool = False,
    build_dir: str | os.PathLike[str] | None = None,
    device: Any = None,
    backend: str = "cuda",
    precision: Any = "fp32",
    check_for_excessive_speedup: bool = True,
    excessive_speedup_threshold: float = 10,
    *,
    overrides: Sequence[str] = (),
) -> KernelExecResult | None:
    """Evaluate a kernel against a PyTorch reference.

    Args:
        original_model_src: reference in KernelBench's format.
        custom_model_src: source that defines `ModelNew`.
        seed_num: equal seeds give equal inputs for equal sources.
        num_correct_trials: correctness trials, each on fresh inputs.
        num_perf_trials: timed samples.
        measure_performance: measure run times where this machine can; if it cannot, `metadata["not_timed"]` has the
            reason.
        timing_method: used with `overrides=["evaluation.profile=kernelbench"]` only; otherwise recorded calls are
            replayed, because a candidate can change the clocks of the other methods.
        verbose: print the outcome.
        build_dir, device: have no effect. Builds have a cache; `CUDA_VISIBLE_DEVICES` selects GPUs.
        backend: kernel language.
        precision: a dtype of torch, or `fp32`, `fp16`, `bf16`.
        check_for_excessive_speedup: note speedups above `excessive_speedup_threshold` in the metadata.
        overrides: evaluation keys, as for `kernelrl check`; `["forbid=[]"]` rejects no kernel by its source.

    Returns:
        None, as from KernelBench, where an evaluation failed for a reason that is not the kernel's: try again.

    Raises:
        UsageError: the reference is no task, or an argument cannot be used.
        MissingPrerequisite: this machine cannot execute the backend.
    """
    parse_task_source(original_model_src, "original_model_src")
    spec = _spec(backend, precision, num_correct_trials, num_perf_trials, timing_method, overrides)
    limit = excessive_speedup_threshold if check_for_excessive_speedup else None
    spec = attrs.evolve(spec, settings=attrs.evolve(spec.settings, excessive_speedup=limit))
    task = Task("original_model_src", original_model_src)
    turn, not_timed = in_background(_evaluated(spec, task, custom_model_src, seed_num, measure_performance))
    if verbose:
        print(f"kernelrl: {turn.outcome.value}, {turn.verdict.value} {turn.message}".rstrip())
    if turn.masked:
        _log.warning("no result: %s", turn.message)
        return None
    return _result(turn, not_timed)


def _spec(
    backend: str, precision: Any, trials: int, timed: int, timing_method: str, overrides: Sequence[str]
) -> EvaluationSpec:
    dtype = str(precision).removeprefix("torch.")
    for argument, value, known in (
        ("precision", dtype, _PRECISIONS),
        ("timing_method", timing_method, _TIMING_METHODS),
    ):
        if value not in known:
            raise UsageError(f"{argument}={value!r}: {suggestion(value, known)}")
    settings = {"trials": trials, "timing_trials": timed, "precision": _PRECISIONS[dtype]}
    plain = {**DEFAULT_EVALUATION, "backend": {"use": backend}, "evaluation": settings}
    spec = read_evaluation_spec(plain, overrides, registry=registry())
    if spec.settings.profile == "kernelbench":
        spec = attrs.evolve(spec, settings=attrs.evolve(spec.settings, timing_method=timing_method))
    return spec


async def _evaluated(spec: EvaluationSpec, task: Task, text: str, seed: int, timing: bool) -> tuple[Turn, str]:
    """The turn, and why it is not timed although it was requested."""
    # One evaluator, whose processes stay warm. The rest is cheap.
    name = spec.evaluator.use
    evaluator = cast(Evaluator, await shared(f"evaluator {spec.evaluator}", lambda: _made(spec)))
    await evaluator.start()
    not_timed = why_untimed(spec, evaluator, registry()) if timing else ""
    spec = with_timing(spec, timing and not not_timed)
    secret = hashlib.sha256(f"{name} {seed}".encode()).digest()
    made = cast(
        CandidateEvaluator,
        await shared(
            f"{seed} {spec}",
            lambda: CandidateEvaluator.from_spec(
                spec, registry=registry(), secret=secret, cache_dir=None, evaluator=evaluator
            ),
        ),
    )
    turn = await evaluate_kernel(made, task, text)
    if turn.evaluation is not None and turn.evaluation.checked:
        raise MissingPrerequisite(turn.message, fix=f"use a machine with a GPU for backend {spec.backend.use}")
    return turn, not_timed


def _made(spec: EvaluationSpec) -> Evaluator:
    return registry().make("evaluators", spec.evaluator)


def _result(turn: Turn, not_timed: str) -> KernelExecResult:
    evaluation = turn.evaluation
    hardware = _hardware(turn)
    findings = [f"{found.rule} ({found.severity.value}): {found.evidence}" for found in turn.findings]
    metadata: dict[str, Any] = {
        **hardware,
        **_errors(turn),
        "outcome": turn.outcome.value,
        "verdict": turn.verdict.value,
        "findings": findings,
        "message": turn.message,
        "speedup": turn.speedup,
    }
    if any(found.rule == "excessive_speedup" for found in turn.findings):
        metadata["excessive_speedup"] = True
    if evaluation is None:
        return KernelExecResult(metadata=metadata)
    metadata["correctness_trials"] = f"({evaluation.tests_passed} / {evaluation.tests_total})"
    metadata["isolation"] = evaluation.isolation.level
    if reason := not_timed or (turn.correct and evaluation.not_timed):
        metadata["not_timed"] = reason
    result = KernelExecResult(evaluation.compiled, turn.correct, metadata)
    if turn.correct and evaluation.runtime is not None:
        result.runtime_stats = _times(evaluation.runtime) | hardware
        result.runtime = result.runtime_stats["mean"]
    if turn.correct and evaluation.baseline is not None:
        result.ref_runtime_stats = _times(evaluation.baseline) | hardware
        result.ref_runtime = result.ref_runtime_stats["mean"]
    return result


def _errors(turn: Turn) -> dict[str, Any]:
    """KernelBench's keys for the ways in which a kernel fails."""
    if turn.correct:
        return {}
    key = {
        Outcome.FORMAT_ERROR: "compilation_error",
        Outcome.COMPILE_ERROR: "compilation_error",
        Outcome.RUNTIME_ERROR: "runtime_error",
        Outcome.TIMEOUT: "runtime_error",
        Outcome.OUT_OF_MEMORY: "runtime_error",
    }.get(turn.outcome, "correctness_issue")
    found = {key: turn.message, f"{key}_name": turn.outcome.value}
    mismatch = turn.evaluation.mismatch if turn.evaluation is not None else None
    if mismatch is not None and mismatch.max_abs is not None and mismatch.mean_abs is not None:
        differences = {"max_difference": mismatch.max_abs, "avg_difference": mismatch.mean_abs}
        return found | {name: [f"{value:.6f}"] for name, value in differences.items()}
    return found


def _hardware(turn: Turn) -> dict[str, Any]:
    known: Mapping[str, Any] = turn.evaluation.provenance if turn.evaluation is not None else {}
    return {"hardware": known.get("gpu") or known.get("cpu"), "device": known.get("device")}


def _times(measured: RuntimeStatistics) -> dict[str, Any]:
    times = {"mean": measured.median_us, "p10": measured.p10_us, "p90": measured.p90_us}
    return {name: value / 1e3 for name, value in times.items()} | {"num_trials": measured.n}
