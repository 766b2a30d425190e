"""The tolerance depends on the reference's own error, and errors of factors of ten bits are detected."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from small_tasks import reference  # noqa: E402

from kernelrl_core.api.evaluators import Cause, Mismatch  # noqa: E402
from kernelrl_judge.protocol.device_memory import DeviceMemoryError  # noqa: E402
from kernelrl_judge.task.comparison import Tolerance, compare_values, tolerance  # noqa: E402
from kernelrl_judge.task.precision import _is_tf32_allowed, largest_error, wrong_values  # noqa: E402
from kernelrl_judge.task.reference import Reference  # noqa: E402


def wrong(task: Reference, actual: Any) -> Mismatch | None:
    inputs = task.inputs(0)
    return wrong_values(task, inputs, 0, task.expected(inputs, 0), actual, tolerance(task.settings))


def test_eight_times_the_own_error_is_allowed_within_sixteen_times_the_tolerance() -> None:
    # expected 1: declared 1e-4 + 1e-4 = 2e-4, capped at 3.2e-3
    want = torch.ones(4, dtype=torch.float64)
    for own, allowed in ((1e-5, 2e-4), (1e-4, 8e-4), (1.0, 3.2e-3)):
        limit = Tolerance(1e-4, 1e-4, strict=True, own_errors={"": own})
        assert compare_values(want, want + 0.99 * allowed, limit) is None
        assert compare_values(want, want + 1.01 * allowed, limit) is not None


@pytest.mark.parametrize(("n_elements", "is_right"), [(1024, True), (1, False)])
def test_the_allowed_rounding_error_grows_with_the_elements_of_a_row(n_elements: int, is_right: bool) -> None:
    # eight times the unit of rounding of 64 is 2, and 1e-2 + 0.64 are declared
    want = torch.ones(n_elements, dtype=torch.float64)
    want[0] = 64.0
    got = want.clone()
    got[0] += 1.9
    limit = Tolerance(1e-2, 1e-2, strict=True, grows=True, own_errors={"": 2.0**-8}, rounding=2.0**-8)
    assert (compare_values(want, got, limit) is None) == is_right
    got[0] += 0.2
    assert compare_values(want, got, limit) is not None


@pytest.mark.parametrize("shares_memory", [True, False])
def test_an_error_that_double_precision_explains_is_no_verdict_without_memory_beside_others(
    monkeypatch: pytest.MonkeyPatch, shares_memory: bool
) -> None:
    def lacks_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    task = cancelling()
    task.facts.shares_memory = shares_memory
    monkeypatch.setattr(Reference, "in_double", lacks_memory)
    with pytest.raises(DeviceMemoryError) if shares_memory else contextlib.nullcontext():
        assert wrong(task, task.inputs(0)[0]) is not None
    # Far from the reference, an output is wrong in any precision.
    assert wrong(task, task.inputs(0)[0] + 1.0) is not None


def test_the_own_error_excludes_the_rounding_of_the_output() -> None:
    exact = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert largest_error(exact, torch.tensor([1.0, 2.0 + 2**-7], dtype=torch.bfloat16)) == 0.0
    assert largest_error(exact, torch.tensor([1.0, 2.5])) == pytest.approx(0.5)


def test_sums_beside_others_have_the_tolerance_of_their_own_magnitude() -> None:
    limit = Tolerance(1e-4, 1e-4, strict=True, grows=True, scales={"": 1e5})
    assert compare_values(torch.ones(1), torch.full((1,), 10.0), limit) is None
    assert compare_values(torch.ones(2), torch.full((2,), 10.0), limit) is not None


def cancelling() -> Reference:
    """A reference that is off by about 6e-4, as 1e4 has 2^-10 for its last bit in single precision."""
    return reference("return (x + 1e4) - 1e4")


def test_a_kernel_as_exact_as_the_reference_is_correct() -> None:
    task = cancelling()
    assert compare_values(task.expected(task.inputs(0)), task.inputs(0)[0], tolerance(task.settings)) is not None
    assert wrong(task, task.inputs(0)[0]) is None


def test_a_single_sum_that_cancels_has_the_tolerance_of_its_usual_magnitude() -> None:
    task = reference("return x.sum().reshape(1)")
    index = next(index for index in range(10_000) if abs(float(task.expected(task.inputs(index), index))) < 0.05)
    inputs = task.inputs(index)
    expected = task.expected(inputs, index)
    # The usual magnitude is 512 ** 0.5, of which 1e-4 are 2.3e-3.
    for error, right in ((1.5e-3, True), (4e-3, False)):
        found = wrong_values(task, inputs, index, expected, expected + error, tolerance(task.settings))
        assert (found is None) == right


def test_wrong_outputs_are_detected_under_a_large_error_of_the_reference() -> None:
    task = reference("return (x + 3e6) - 3e6")
    assert wrong(task, torch.zeros(8, 64)) is not None
    assert wrong(task, torch.randn(8, 64)) is not None


@pytest.mark.parametrize("bits", [lambda b: b & ~0x1FFF, lambda b: (b + 0x1000) & ~0x1FFF])
def test_an_error_of_factors_of_ten_bits_is_named(bits: Any) -> None:
    task = reference("return x @ y", "torch.randn(32, 512), torch.randn(512, 32)", names="x, y")
    narrow = [bits(tensor.view(torch.int32)).view(torch.float32) for tensor in task.inputs(0)]
    found = wrong(task, narrow[0] @ narrow[1])
    assert found is not None
    assert Cause.FACTORS in [cause.kind for cause in found.causes]


@pytest.mark.parametrize("may_be_narrow", [True, False])
def test_convolutions_of_ten_bits_are_right_where_pytorch_may_choose_them(may_be_narrow: bool) -> None:
    task = reference("return torch.conv2d(x, y)", "torch.randn(2, 8, 16, 16), torch.randn(4, 8, 3, 3)", names="x, y")
    task.facts.has_narrow_convolutions = may_be_narrow
    x, y = ((tensor.view(torch.int32) & ~0x1FFF).view(torch.float32) for tensor in task.inputs(0))
    narrow = torch.conv2d(x, y)
    found = wrong(task, narrow)
    assert (found is None) == may_be_narrow
    assert wrong(task, narrow + 0.1) is not None


@pytest.mark.parametrize("setting", ["allow_tf32 = False", "conv.fp32_precision = 'ieee'"])
def test_a_task_may_turn_off_convolutions_of_ten_bits(setting: str) -> None:
    if "conv" in setting and not hasattr(torch.backends.cudnn, "conv"):
        pytest.skip("needs torch 2.9")
    assert _is_tf32_allowed(reference("return x * 2"))
    assert not _is_tf32_allowed(reference(f"torch.backends.cudnn.{setting}; return x * 2"))


def test_no_other_error_is_attributed_to_ten_bits() -> None:
    task = reference("return x @ y", "torch.randn(32, 512), torch.randn(512, 32)", names="x, y")
    x, y = task.inputs(0)
    for actual in (x @ y + 0.01, (x.bfloat16() @ y.bfloat16()).float(), x @ y * 1.001):
        found = wrong(task, actual)
        assert found is not None
        assert Cause.FACTORS not in [cause.kind for cause in found.causes]


def test_single_precision_that_a_reference_requests_is_double_precision_in_the_exact_output() -> None:
    task = reference(
        "return x.float() @ self.w, x.to(torch.float32).view(torch.int32)",
        "torch.randn(8, 64).half()",
        init="self.w = torch.nn.Parameter(torch.randn(64, 3))",
    )
    inputs = task.inputs(0)
    product, bits = task.exact(inputs, 0)
    assert torch.equal(product, inputs[0].double() @ task.state["w"].double())
    assert torch.equal(bits, inputs[0].float().view(torch.int32))
