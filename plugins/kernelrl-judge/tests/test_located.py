"""The place of wrong elements in an output, and the causes that they show."""

from __future__ import annotations

import platform
from collections.abc import Callable

import pytest
import torch

from kernelrl_core.api.evaluators import Cause, EvaluationSettings, Mismatch, describe_mismatch
from kernelrl_judge.task.comparison import compare_values, tolerance
from kernelrl_judge.task.located import located

LIMIT = tolerance(EvaluationSettings())


def found(expected: torch.Tensor, actual: torch.Tensor, *inputs: torch.Tensor) -> Mismatch:
    wrong = compare_values(expected, actual, LIMIT)
    assert wrong is not None
    return located(wrong, expected, actual, LIMIT, [*inputs])


def numbers(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def filled(bits: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """The last 24 columns have these bits."""

    def change(expected: torch.Tensor) -> torch.Tensor:
        actual = expected.clone()
        actual.view(torch.int32)[:, -24:] = bits - (1 << 32) if bits >= 1 << 31 else bits
        return actual

    return change


def test_shape_dtype_elements_and_region_are_named() -> None:
    expected = numbers(4, 100)
    actual = expected.clone()
    actual[:, 96:] += 1.0
    wrong = found(expected, actual)
    assert (wrong.shape, wrong.dtype, wrong.pattern) == ((4, 100), "float32", "tail")
    assert [element.index for element in wrong.elements] == [(0, 96), (0, 97), (1, 99), (3, 99)]
    assert wrong.elements[0].expected == f"{expected[0, 96]:.6g}"
    assert wrong.elements[0].actual == f"{actual[0, 96]:.6g}"
    statement = describe_mismatch(wrong).splitlines()[0]
    assert statement == (
        "The output [4, 100] float32 has wrong values in 16 of 400 elements (4 %): the last 4 of 100 columns."
    )


def test_an_element_of_a_complex_output_has_one_index() -> None:
    expected = torch.complex(numbers(8), numbers(8))
    wrong = found(expected, expected + torch.tensor([0.0] * 7 + [1.0]))
    assert [element.index for element in wrong.elements] == [(7,)]


def test_the_output_is_found_by_its_path() -> None:
    expected = [numbers(4), {"a": numbers(5)}]
    actual = [expected[0], {"a": expected[1]["a"] * 2.0}]  # type: ignore[index,call-overload]
    wrong = compare_values(expected, actual, LIMIT)
    assert wrong is not None
    assert located(wrong, expected, actual, LIMIT).shape == (5,)


NEW_MEMORY = pytest.param(
    filled(0x7FC00000), Cause.UNWRITTEN, marks=pytest.mark.skipif(platform.machine() != "x86_64", reason="NaN of x86")
)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (filled(0xFEFEFEFE), Cause.UNWRITTEN),
        (filled(0x7B7B7B7B), Cause.UNWRITTEN),
        NEW_MEMORY,
        (filled(0xFFFFFFFF), Cause.OUT_OF_BOUNDS),
        (filled(0xFFFFFFFE), Cause.RACE),
        (lambda y: torch.cat([y[:, :-1], y[:, -1:] + 1.0], 1), Cause.BOUNDARY),
        (lambda y: torch.cat([y[:, :64], y[:, 64:] + numbers(60, 36, seed=4)], 1), Cause.BOUNDARY),
        (lambda y: torch.zeros_like(y), Cause.ZERO),
        (lambda y: y * 0.0 + 7.0, Cause.CONSTANT),
        (lambda y: y * 1.25, Cause.FACTOR),
        (lambda y: y * numbers(60, 1, seed=4).abs(), Cause.FACTOR),
        (lambda y: y + 3.0, Cause.OFFSET),
        (lambda y: y + numbers(100), Cause.OFFSET),
        (lambda y: y.roll(1, 1), Cause.SHIFTED),
        (lambda y: y.T.reshape(60, 100), Cause.TRANSPOSED),
        (lambda y: y.half().float(), Cause.ROUNDING),
        (lambda y: torch.where(y < 0, y * 0.9 - 1.0, y), Cause.RANGE),
        (lambda y: y / 0.0, Cause.UNDEFINED),
    ],
)
def test_a_cause_is_named(change: Callable[[torch.Tensor], torch.Tensor], cause: Cause) -> None:
    expected = numbers(60, 100)
    assert cause in [one.kind for one in found(expected, change(expected)).causes]


def test_a_copy_of_an_input_is_named() -> None:
    given = numbers(60, 100)
    assert [one.kind for one in found(given.abs(), given, given).causes] == [Cause.COPY, Cause.RANGE]


def test_elements_that_nothing_wrote_are_named_beside_those_that_are_wrong_for_it() -> None:
    expected = numbers(60, 100)
    actual = filled(0xFEFEFEFE)(expected * 1.25)
    causes = found(expected, actual).causes
    assert [one.kind for one in causes] == [Cause.UNWRITTEN, Cause.FACTOR]
    assert causes[0].evidence.endswith("nothing wrote them: the last 24 of 100 columns.")


def test_noise_has_no_cause() -> None:
    expected = numbers(60, 100)
    assert found(expected, expected + 0.1 * numbers(60, 100, seed=4)).causes == ()


DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int32, torch.uint64, torch.bfloat16, torch.float16,
    torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64,
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 40)], ids=str)
def test_elements_of_every_dtype_are_located(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    expected = torch.ones(shape).to(dtype)
    actual = torch.zeros(shape).to(dtype)
    wrong = found(expected, actual)
    assert (wrong.pattern, wrong.elements[0].index) == ("all", (0,) * len(shape))
