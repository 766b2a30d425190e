"""KernelBench's function by our evaluator: signature, fields, keys of the metadata, and a real kernel."""

from __future__ import annotations

import ast
import inspect
import json
import os
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_adapters.kernelbench import KernelExecResult, _result, eval_kernel_against_ref
from kernelrl_core.api.checkers import Finding, Severity, Verdict
from kernelrl_core.api.errors import InfrastructureError, UsageError
from kernelrl_core.api.evaluators import Mismatch
from kernelrl_core.api.rewards import Turn
from kernelrl_core.api.tasks import Outcome
from kernelrl_testing.values import REFERENCE, make_evaluation, make_runtime, make_turn

PARAMETERS = {
    "original_model_src": inspect.Parameter.empty,
    "custom_model_src": inspect.Parameter.empty,
    "seed_num": 42,
    "num_correct_trials": 1,
    "num_perf_trials": 10,
    "measure_performance": False,
    "timing_method": "cuda_event",
    "verbose": False,
    "build_dir": None,
    "device": None,
    "backend": "cuda",
    "precision": "fp32",
    "check_for_excessive_speedup": True,
    "excessive_speedup_threshold": 10,
}
"""Of KernelBench 0.2.0.dev0, commit 423217d; there `device` is the current GPU and `precision` torch.float32."""
FIELDS = ("compiled", "correctness", "metadata", "runtime", "runtime_stats", "ref_runtime", "ref_runtime_stats")
KERNEL = "class ModelNew:\n    def forward(self, x):\n        return 'right'\n"
FAKES: dict[str, Any] = {"backend": "fake", "overrides": ["evaluator.use=fake", "checkers=null", "forbid=[]"]}


def test_arguments_and_fields_are_those_of_kernelbench() -> None:
    parameters = inspect.signature(eval_kernel_against_ref).parameters.values()
    ours = {one.name: one.default for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY}
    assert ours == PARAMETERS
    assert list(ours) == list(PARAMETERS)
    assert tuple(field.name for field in attrs.fields(KernelExecResult)) == FIELDS


@pytest.mark.skipif("KERNELBENCH_ROOT" not in os.environ, reason="KERNELBENCH_ROOT names no clone of KernelBench")
def test_the_clone_has_these_arguments_and_fields() -> None:
    path = Path(os.environ["KERNELBENCH_ROOT"]) / "src/kernelbench/eval.py"
    defined = {getattr(node, "name", ""): node for node in ast.parse(path.read_text(encoding="utf-8")).body}
    function, result = defined["eval_kernel_against_ref"], defined["KernelExecResult"]
    assert isinstance(function, ast.FunctionDef)
    assert isinstance(result, ast.ClassDef)
    assert [argument.arg for argument in function.args.args] == list(PARAMETERS)
    plain = {name: node.value for name, node in _defaults(function).items() if isinstance(node, ast.Constant)}
    assert plain == {name: PARAMETERS[name] for name in plain}
    assert len(plain) >= 10
    names = [
        node.target.id for node in result.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    assert tuple(names) == FIELDS


def _defaults(function: ast.FunctionDef) -> dict[str, ast.expr]:
    names = [argument.arg for argument in function.args.args]
    return dict(zip(names[-len(function.args.defaults) :], function.args.defaults, strict=True))


def test_a_kernel_is_evaluated_by_the_evaluator_of_kernelrl(capsys: pytest.CaptureFixture[str]) -> None:
    found = eval_kernel_against_ref(REFERENCE, KERNEL, verbose=True, **FAKES)
    assert found is not None
    assert (found.compiled, found.correctness, found.runtime) == (True, True, -1.0)
    assert capsys.readouterr().out == "kernelrl: correct, clean\n"
    found = eval_kernel_against_ref(REFERENCE, KERNEL.replace("right", "wrong"), **FAKES)
    assert found is not None
    assert (found.compiled, found.correctness) == (True, False)
    assert found.metadata["correctness_issue"] == "the values differ"


def test_arguments_become_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    import kernelrl_fake

    requests: list[Any] = []
    first = kernelrl_fake.Evaluator.evaluate

    async def evaluate(self: Any, request: Any) -> Any:
        requests.append(request)
        return await first(self, request)

    monkeypatch.setattr(kernelrl_fake.Evaluator, "evaluate", evaluate)

    def settings(*overrides: str, **arguments: Any) -> Any:
        given = FAKES | {"overrides": [*FAKES["overrides"], *overrides]}
        assert eval_kernel_against_ref(REFERENCE, KERNEL, **arguments, **given) is not None
        return requests[-1].settings

    plain = settings(measure_performance=True, num_correct_trials=3, num_perf_trials=20, precision="torch.bfloat16")
    assert (plain.trials, plain.timing, plain.timing_trials, plain.precision) == (3, True, 20, "bf16")
    assert (plain.profile, plain.timing_method, plain.excessive_speedup) == ("strict", "replay", 10.0)
    theirs = settings("evaluation.profile=kernelbench", timing_method="do_bench", check_for_excessive_speedup=False)
    assert (theirs.timing, theirs.timing_method, theirs.excessive_speedup) == (False, "do_bench", None)
    settings(seed_num=1)
    settings(seed_num=2)
    settings(seed_num=1)
    seeds = [request.seed for request in requests[-3:]]
    assert seeds[0] == seeds[2] != seeds[1]


def test_a_failed_machine_gives_none_and_a_mistake_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    import kernelrl_fake

    async def evaluate(self: Any, request: Any) -> Any:
        raise InfrastructureError("planted")

    monkeypatch.setattr(kernelrl_fake.Evaluator, "evaluate", evaluate)
    assert eval_kernel_against_ref(REFERENCE, KERNEL, seed_num=9, **FAKES) is None
    with pytest.raises(UsageError, match="did you mean 'cuda_event'"):
        eval_kernel_against_ref(REFERENCE, KERNEL, timing_method="cuda_events", **FAKES)
    with pytest.raises(UsageError, match="precision='int8'"):
        eval_kernel_against_ref(REFERENCE, KERNEL, precision="int8", **FAKES)
    with pytest.raises(UsageError, match="original_model_src"):
        eval_kernel_against_ref("x = 1", KERNEL, **FAKES)


def result(turn: Turn) -> KernelExecResult:
    found = _result(turn, "")
    json.dumps(found.metadata)
    return found


@pytest.mark.parametrize(
    ("outcome", "compiled", "key"),
    [
        (Outcome.FORMAT_ERROR, False, "compilation_error"),
        (Outcome.COMPILE_ERROR, False, "compilation_error"),
        (Outcome.REJECTED, False, "correctness_issue"),
        (Outcome.RUNTIME_ERROR, True, "runtime_error"),
        (Outcome.TIMEOUT, True, "runtime_error"),
        (Outcome.OUT_OF_MEMORY, True, "runtime_error"),
        (Outcome.INCORRECT, True, "correctness_issue"),
        (Outcome.HACKED, True, "correctness_issue"),
    ],
)
def test_a_failure_has_the_key_of_kernelbench(outcome: Outcome, compiled: bool, key: str) -> None:
    found = result(make_turn(outcome, message="Why."))
    assert (found.compiled, found.correctness, found.runtime) == (compiled, False, -1.0)
    assert (found.metadata[key], found.metadata[f"{key}_name"]) == ("Why.", outcome.value)


def test_differences_are_texts_as_in_kernelbench() -> None:
    mismatch = Mismatch("values", "", max_abs=0.5, mean_abs=0.125, wrong_share=0.25)
    found = result(make_turn(Outcome.INCORRECT, evaluation=make_evaluation(Outcome.INCORRECT, mismatch=mismatch)))
    assert found.metadata["max_difference"] == ["0.500000"]
    assert found.metadata["avg_difference"] == ["0.125000"]


def test_times_are_in_milliseconds() -> None:
    evaluation = make_evaluation(
        runtime=make_runtime(50.0, n=20),
        baseline=make_runtime(100.0, n=20),
        speedup=2.0,
        provenance={"gpu": "H", "device": "cuda:0"},
    )
    finding = Finding("excessive_speedup", Severity.NOTE, "far too fast")
    found = result(make_turn(evaluation=evaluation, findings=(finding,)))
    hardware = {"hardware": "H", "device": "cuda:0"}
    assert (found.runtime, found.ref_runtime) == (0.05, 0.1)
    assert found.runtime_stats == {"mean": 0.05, "p10": 0.05, "p90": 0.05, "num_trials": 20, **hardware}
    assert found.ref_runtime_stats["mean"] == 0.1
    assert found.metadata["excessive_speedup"] is True
    assert {"hardware": "H", "device": "cuda:0", "speedup": 2.0}.items() <= found.metadata.items()


def test_a_suspect_is_correct_and_named() -> None:
    finding = Finding("replay", Severity.SUSPECT, "equal outputs")
    found = result(make_turn(findings=(finding,), verdict=Verdict.SUSPECT))
    assert found.correctness
    assert found.metadata["verdict"] == "suspect"
    assert found.metadata["findings"] == ["replay (suspect): equal outputs"]


DECOY = """
import torch
import triton
import triton.language as tl


@triton.jit
def relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask, other=0.0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return x * (x > 0)
"""


def test_a_hack_is_not_correct_and_missing_times_have_a_reason() -> None:
    mode = ["backend.mode=interpreter", "evaluator.workers=1"]
    honest = DECOY.replace("return x * (x > 0)", "return y").replace(
        "tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        "tl.maximum(tl.load(x_ptr + offsets, mask=mask, other=0.0), 0.0)",
    )
    found = [
        eval_kernel_against_ref(REFERENCE, source, backend="triton", measure_performance=True, overrides=mode)
        for source in (honest, DECOY)
    ]
    assert [(one.correctness, one.metadata["outcome"]) for one in found if one] == [
        (True, "correct"),
        (False, "hacked"),
    ]
    assert found[0] is not None
    assert found[0].metadata["not_timed"] == "Triton's interpreter has no meaningful run time"
