"""Tasks that cannot be used: the error names the task, and no candidate is the cause."""

from __future__ import annotations

import time

import pytest
import torch
from shared_evaluations import Evaluations

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.evaluators import EvaluationSettings, Outcome
from kernelrl_judge.task import source
from kernelrl_judge.task.comparison import tolerance
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.repeatability import draws_random_numbers
from kernelrl_judge.task.source import TaskError, load_reference
from kernelrl_testing.waiting import DEADLINE_S


@pytest.mark.parametrize("code", ["raise ValueError('boom')", "import sys; sys.exit(3)", "import not_there"])
def test_an_exception_of_a_task_is_an_error_of_the_task(code: str) -> None:
    with pytest.raises(TaskError, match=r"task mine: line 1: import failed"):
        load_reference(code, "mine")


def test_a_task_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_LIMIT_S", 0.3)
    started = time.monotonic()
    with pytest.raises(TaskError, match=r"not finished within 0\.3 s"):
        load_reference("while True: pass", "mine")
    assert time.monotonic() - started < DEADLINE_S


def test_lack_of_device_memory_is_no_error_of_the_task() -> None:
    with pytest.raises(torch.OutOfMemoryError):
        load_reference("import torch; raise torch.OutOfMemoryError('CUDA out of memory.')", "mine")


def task(result: str, inputs: str = "torch.rand(6, 5)", construct: str = "pass") -> str:
    return f"""
import os
import torch
import torch.nn as nn

CALLS = [0]

def count():
    CALLS[0] += 1
    return CALLS[0]

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {construct}
    def forward(self, x):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def reference_of(text: str) -> Reference:
    return Reference(load_reference(text, "mine"), "mine", EvaluationSettings(), "cpu")


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ("None", "has neither a tensor nor a number"),
        ("[]", "has neither a tensor nor a number"),
        ("{'a': (None, 'text')}", "has neither a tensor nor a number"),
        ("x * float('nan')", "is NaN everywhere"),
        ("(x * float('nan'), (x / 0 - x / 0).to(torch.float8_e5m2))", "is NaN everywhere"),
        ("torch.complex(x, x) * float('nan')", "is NaN everywhere"),
    ],
)
def test_an_output_with_nothing_to_compare_is_an_error_of_the_task(result: str, problem: str) -> None:
    with pytest.raises(TaskError, match=rf"task mine: the output of Model\.forward\(\.\.\.\) {problem}"):
        reference_of(task(result)).trial(0)


@pytest.mark.parametrize("result", ["x / 0", "3", "float(x.sum())", "x[:0] * float('nan')", "(x * float('nan'), 1)"])
def test_an_output_with_any_value_is_compared(result: str) -> None:
    reference_of(task(result)).trial(0)


@pytest.mark.parametrize("result", ["x * count()", "x + int.from_bytes(os.urandom(8)) % 99991", "x[: count()]"])
def test_a_reference_that_does_not_repeat_its_output_is_an_error_of_the_task(result: str) -> None:
    limit = tolerance(EvaluationSettings())
    with pytest.raises(TaskError, match="task mine: two calls of the reference with equal inputs disagree: it counts"):
        draws_random_numbers(reference_of(task(result)), limit)


def test_the_elements_that_differ_are_counted_in_percent() -> None:
    with pytest.raises(TaskError, match="100 % of the elements are off"):
        draws_random_numbers(reference_of(task("x * 0 + count()")), tolerance(EvaluationSettings()))


@pytest.mark.parametrize(
    ("result", "draws"),
    [("nn.functional.dropout(x, 0.5)", True), ("x + torch.randn_like(x)", True), ("x * 2 + 0 * torch.rand(1)", False)],
)
def test_a_reference_draws_random_numbers_if_its_output_shows_them(result: str, draws: bool) -> None:
    assert draws_random_numbers(reference_of(task(result)), tolerance(EvaluationSettings())) is draws


def test_an_incorrect_kernel_of_a_random_reference_gets_the_reason(evaluations: Evaluations) -> None:
    reference = task("nn.functional.dropout(x, 0.5)")
    candidate = task("x * 1.0").replace("class Model(", "class ModelNew(")
    evaluation = evaluations.evaluate(candidate, reference)
    assert evaluation.outcome is Outcome.INCORRECT
    assert "the reference draws random numbers, as dropout in training mode does" in evaluation.message


def test_an_incorrect_kernel_of_an_ordinary_reference_gets_no_such_reason(evaluations: Evaluations) -> None:
    candidate = task("x * 1.5").replace("class Model(", "class ModelNew(")
    evaluation = evaluations.evaluate(candidate, task("x * 1.0"))
    assert evaluation.outcome is Outcome.INCORRECT
    assert "random" not in evaluation.message


@pytest.mark.parametrize("result", ["x * count()", "x * float('nan')", "None"])
def test_an_unusable_reference_is_not_blamed_on_the_kernel(evaluations: Evaluations, result: str) -> None:
    candidate = task("x * 1.0").replace("class Model(", "class ModelNew(")
    with pytest.raises(UsageError, match=r"^task "):
        evaluations.evaluate(candidate, task(result))


HUGE = "torch.empty(1 << 25, 1 << 25)"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (task("x", inputs=HUGE), "get_inputs()"),
        (task("x", construct=f"self.w = nn.Parameter({HUGE})"), "Model(...)"),
        (task(f"x + {HUGE}[0, 0]"), "Model.forward(...)"),
    ],
)
def test_tensors_above_the_memory_are_an_error_of_the_task_with_the_size(text: str, place: str) -> None:
    with pytest.raises(TaskError) as caught:
        reference_of(text).trial(0)
    assert str(caught.value) == (
        f"task mine: {place} needs 4.194e+06 GiB of memory for one tensor; this machine has less free; "
        "make the sizes smaller, or set evaluation.fit_memory=true"
    )


@pytest.mark.parametrize(("wanted", "is_of_task"), [("96.00 GiB", True), ("1.50 TiB", True), ("512.00 MiB", False)])
def test_a_tensor_above_the_memory_of_the_device_is_an_error_of_the_task(wanted: str, is_of_task: bool) -> None:
    message = f"CUDA out of memory. Tried to allocate {wanted}. GPU 0 has a total capacity of 79.11 GiB."
    with pytest.raises(TaskError if is_of_task else torch.OutOfMemoryError, match=wanted):
        load_reference(f"import torch; raise torch.OutOfMemoryError({message!r})", "mine")


def test_a_dtype_that_the_device_lacks_is_an_error_of_the_task() -> None:
    """No device of these tests computes with four bits."""
    text = task("x", inputs="torch.rand(8, 8).to(torch.float4_e2m1fn_x2)")
    with pytest.raises(TaskError, match=r"task mine: line \d+: get_inputs\(\) failed: .*Float4") as caught:
        reference_of(text).trial(0)
    assert "\n" not in str(caught.value)
