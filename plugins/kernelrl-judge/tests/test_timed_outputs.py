"""Comparison of the outputs of timed replays, and memory that references and comparisons take."""

from __future__ import annotations

import pytest
import torch
from small_tasks import reference

from kernelrl_core.types import EvaluationSettings
from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.task import comparing
from kernelrl_judge.task.comparing import compare_bytes, tolerance
from kernelrl_judge.timing import replay

LIMIT = tolerance(EvaluationSettings())


@pytest.fixture(params=[1 << 28, 16], ids=["at once", "in parts"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "_COMPARED_AT_ONCE_BYTES", request.param)
    monkeypatch.setattr(comparing, "_BYTES_AT_ONCE", request.param)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("error", "close"), [(0.0, True), (5e-5, True), (0.5, False), (float("nan"), False)])
def test_one_wrong_element_of_one_call_is_found(dtype: torch.dtype, error: float, close: bool) -> None:
    expected = torch.ones(3, 5, 7, dtype=dtype)
    actual = expected.clone()
    actual[1, 4, 6] += error
    assert replay._surely_close(expected, actual, LIMIT) is close


@pytest.mark.usefixtures("parts")
def test_bytes_differ_where_one_of_them_does() -> None:
    first = torch.arange(33.0)
    second = first.clone()
    assert compare_bytes([first], [second]) is None
    second[32] += 1
    assert compare_bytes([first], [second]) is not None


def test_the_form_of_an_output_takes_no_memory() -> None:
    task = reference("return torch.relu(x)")
    expected = task.trial(0).expected
    (form,) = tensors(task.like)
    assert (form.shape, form.dtype, form.device.type) == (expected.shape, expected.dtype, "meta")
