"""Settings of torch that a task changes hold in its own calls, and in no other ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from small_tasks import reference  # noqa: E402

from kernelrl_core.api.evaluators import EvaluationSettings  # noqa: E402
from kernelrl_judge.task.reference import Reference  # noqa: E402
from kernelrl_judge.task.source import load_reference  # noqa: E402

SOURCE = """
import torch

torch.set_default_dtype(torch.float64)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
    def forward(self, x):
        return x * self.weight + torch.ones(4)

def get_inputs():
    return [torch.randn(3, 4)]

def get_init_inputs():
    return []
"""


@pytest.fixture(autouse=True)
def usual_settings() -> Iterator[None]:
    yield
    assert torch.get_default_dtype() is torch.float32
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_default_dtype_holds_in_all_calls_of_its_task() -> None:
    task = Reference(load_reference(SOURCE, "double"), "double", EvaluationSettings(), "cpu").with_seed("5eed")
    (x,) = task.inputs(0)
    assert (x.dtype, task.state["weight"].dtype, task.expected([x]).dtype) == (torch.float64,) * 3


def test_a_default_dtype_does_not_hold_for_another_task() -> None:
    Reference(load_reference(SOURCE, "double"), "double", EvaluationSettings(), "cpu")
    assert reference("return x * 2").inputs(0)[0].dtype is torch.float32


def test_a_precision_of_products_that_forward_sets_does_not_hold_for_the_judge() -> None:
    task = reference("torch.set_float32_matmul_precision('high'); return x * 2")
    task.expected(task.inputs(0))


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="needs torch 2.9")
@pytest.mark.parametrize("owner", ["backends", "backends.cuda.matmul", "backends.cudnn.conv", "backends.mkldnn.matmul"])
def test_a_precision_of_one_operation_holds_in_its_task_alone(owner: str) -> None:
    usual = torch.backends.cudnn.conv.fp32_precision
    task = reference(
        f"before = torch.{owner}.fp32_precision; torch.{owner}.fp32_precision = 'ieee'; return x + (before == 'ieee')"
    )
    (x,) = task.inputs(0)
    # The first call was made when the reference was built.
    assert torch.equal(task.expected([x]), x + 1)
    assert torch.backends.cudnn.conv.fp32_precision == usual
    assert torch.equal(reference("return x * 2").expected([x]), x * 2)


@pytest.mark.parametrize("name", ["benchmark", "deterministic"])
def test_settings_of_cudnn_hold_in_their_task_alone(name: str) -> None:
    task = reference(f"torch.backends.cudnn.{name} = True; return x * 2")
    task.expected(task.inputs(0))
    assert not getattr(torch.backends.cudnn, name)


def test_a_new_source_of_a_task_begins_with_the_usual_settings() -> None:
    load_reference(SOURCE, "task")
    assert reference("return x * 2").inputs(0)[0].dtype is torch.float32


def test_double_precision_of_the_judge_holds_for_a_task_with_a_default_dtype_of_its_own() -> None:
    source = SOURCE.replace("torch.set_default_dtype(torch.float64)", "torch.set_default_dtype(torch.bfloat16)")
    task = Reference(load_reference(source, "half"), "half", EvaluationSettings(), "cpu").with_seed("5eed")
    inputs = task.inputs(0)
    assert inputs[0].dtype is torch.bfloat16
    assert task.exact(inputs).dtype is torch.float64
