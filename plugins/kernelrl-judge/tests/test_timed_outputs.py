"""Comparison of the outputs of timed replays in parts, and the memory of references and comparisons."""

from __future__ import annotations

import pytest
import torch
from small_tasks import reference

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.task import comparison
from kernelrl_judge.task.comparison import compare_bytes, tolerance
from kernelrl_judge.timing import replay_measurement

LIMIT = tolerance(EvaluationSettings())


@pytest.fixture(params=[1 << 28, 16], ids=["at once", "in parts"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_measurement, "_COMPARED_AT_ONCE_BYTES", request.param)
    monkeypatch.setattr(comparison, "_BYTES_AT_ONCE", request.param)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("error", "close"), [(0.0, True), (5e-5, True), (0.5, False), (float("nan"), False)])
def test_one_wrong_element_of_one_call_is_found(dtype: torch.dtype, error: float, close: bool) -> None:
    expected = torch.ones(3, 5, 7, dtype=dtype)
    actual = expected.clone()
    actual[1, 4, 6] += error
    assert replay_measurement._surely_close(expected, actual, LIMIT) is close


@pytest.mark.usefixtures("parts")
def test_one_different_byte_is_found() -> None:
    first = torch.arange(33.0)
    second = first.clone()
    assert compare_bytes([first], [second]) is None
    second[32] += 1
    assert compare_bytes([first], [second]) is not None


def test_the_structure_of_the_outputs_takes_no_memory() -> None:
    task = reference("return torch.relu(x)")
    expected = task.trial(0).expected
    (form,) = tensors(task.like)
    assert (form.shape, form.dtype, form.device.type) == (expected.shape, expected.dtype, "meta")


def test_large_outputs_are_compared_in_blocks_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    want = torch.linspace(-1, 1, 1000)
    got = want.clone()
    got[700] += 0.5
    whole = comparison.compare_values(want, got, LIMIT)
    monkeypatch.setattr(comparison, "_COMPARED_AT_ONCE", 64)
    parts = comparison.compare_values(want, got, LIMIT)
    assert whole is not None
    assert parts is not None
    assert parts.kind == whole.kind
    assert parts.max_abs == pytest.approx(whole.max_abs)
    assert parts.mean_abs == pytest.approx(whole.mean_abs)
    assert parts.wrong_share == pytest.approx(whole.wrong_share)
    assert comparison.compare_values(want, want.clone(), LIMIT) is None
