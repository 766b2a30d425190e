"""Elements that a reference leaves open, and wrong elements beside them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from small_tasks import reference

from kernelrl_core.api.evaluators import EvaluationSettings, Mismatch
from kernelrl_judge.task.comparison import tolerance
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.reference import Reference

TIES = "torch.randn(8, 64).mul(2).round()"
"""Rows with many equal values."""


def mismatch(task: Reference, actual: Any) -> Mismatch | None:
    inputs = task.inputs(0)
    return wrong_values(task, inputs, 0, task.expected(inputs, 0), actual, tolerance(EvaluationSettings()))


def last_of_equals(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest values of each row, with the last index of equal ones first."""
    flipped, indices = torch.sort(values.flip(-1), dim=-1, descending=True, stable=True)
    return flipped[:, :count], values.shape[-1] - 1 - indices[:, :count]


@pytest.mark.parametrize("call", ["torch.topk(x, 4, dim=1)", "torch.topk(x, 4)"])
def test_an_index_of_an_equal_value_is_right(call: str) -> None:
    task = reference(f"return {call}", TIES)
    assert mismatch(task, last_of_equals(task.inputs(0)[0], 4)) is None


def test_indices_of_argsort_may_permute_equal_values() -> None:
    task = reference("return torch.argsort(x, dim=-1, descending=True)", TIES)
    assert mismatch(task, last_of_equals(task.inputs(0)[0], 64)[1]) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda indices: indices.index_fill(-1, torch.tensor([1]), 0).where(indices != indices, indices[:, :1]),
        lambda indices: indices + 64,
        lambda indices: (indices + 1) % 64,
    ],
    ids=["duplicated", "out of bounds", "another value"],
)
def test_an_index_that_selects_no_equal_value_once_is_wrong(change: Any) -> None:
    task = reference("return torch.topk(x, 4, dim=1)", TIES)
    values, indices = last_of_equals(task.inputs(0)[0], 4)
    assert mismatch(task, (values, change(indices))) is not None


def test_a_stable_sort_keeps_its_documented_order() -> None:
    task = reference("return torch.sort(x, dim=-1, descending=True, stable=True)", TIES)
    assert mismatch(task, last_of_equals(task.inputs(0)[0], 64)) is not None


def test_argmax_keeps_the_first_index() -> None:
    task = reference("return torch.argmax(x, dim=1)", TIES)
    assert mismatch(task, last_of_equals(task.inputs(0)[0], 1)[1][:, 0]) is not None


QUANTISED = "return torch.round(x / (x.abs().amax(1, keepdim=True) / 127.0)).to(torch.int8)"
MANY = "torch.randn(256, 1024)"


def quantised(x: torch.Tensor, offset: float = 0.5) -> torch.Tensor:
    """Quantised rows with halves away from zero, from another order of operations."""
    scaled = x * (127.0 / x.abs().amax(1, keepdim=True))
    return (scaled.sign() * torch.floor(scaled.abs() + offset)).to(torch.int8)


def test_a_value_at_a_half_may_be_rounded_either_way() -> None:
    # A quarter of the seeds has such a value.
    for number in range(6):
        task = reference(QUANTISED, MANY).with_seed(f"{number}")
        assert mismatch(task, quantised(task.inputs(0)[0])) is None


def test_rounding_in_another_direction_is_wrong() -> None:
    task = reference(QUANTISED, MANY)
    assert mismatch(task, quantised(task.inputs(0)[0], offset=0.0)) is not None


TRUNCATED = "return (x / (x.abs().amax(1, keepdim=True) / 127.0)).to(torch.int8)"


def truncated(x: torch.Tensor, error: float) -> torch.Tensor:
    """Truncated rows, with quotients that are too small by a relative error."""
    scaled = x / (x.abs().amax(1, keepdim=True) / 127.0)
    return (scaled * (1.0 - error)).to(torch.int8)


def test_a_maximum_that_is_divided_by_its_own_scale_may_be_truncated_to_the_integer_below() -> None:
    task = reference(TRUNCATED, MANY)
    assert mismatch(task, truncated(task.inputs(0)[0], 2.0**-23)) is None


def test_quotients_with_a_larger_error_are_wrong() -> None:
    task = reference(TRUNCATED, MANY)
    assert mismatch(task, truncated(task.inputs(0)[0], 2.0**-12)) is not None


def test_one_wrong_integer_is_wrong() -> None:
    task = reference(QUANTISED, MANY)
    actual = task.expected(task.inputs(0), 0).clone()
    actual[3, 5] += 1 if actual[3, 5] < 100 else -1
    assert mismatch(task, actual) is not None


def test_an_output_that_depends_on_the_last_bit_almost_everywhere_is_compared_as_it_is() -> None:
    task = reference("return (x * 1e9).sin().round().to(torch.int32)", "torch.rand(64, 64)")
    other = (task.inputs(0)[0] * (1 + 2.0**-22) * 1e9).sin().round().to(torch.int32)
    assert mismatch(task, other) is not None


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.float16", "torch.bfloat16"])
def test_a_jump_at_a_threshold_is_open_on_both_sides(dtype: str) -> None:
    task = reference(f"return torch.where(x > 0.5, 1.0, 0.0).to({dtype})", f"torch.rand(64, 64, dtype={dtype})")
    inputs = task.inputs(0)
    inputs[0][0, 0] = 0.5
    expected = task.expected(inputs, 0)
    actual = expected.clone()
    actual[0, 0] = 1.0
    limit = tolerance(EvaluationSettings())
    assert wrong_values(task, inputs, 0, expected, actual, limit) is None
    actual[0, 1] = 1.0 - actual[0, 1]
    found = wrong_values(task, inputs, 0, expected, actual, limit)
    assert found is not None
    assert math.isclose(found.max_abs or 0.0, 1.0)
