"""Comparison of outputs, on numbers calculated by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.task.comparison import Tolerance, as_rows, compare_values, tolerance

STRICT = Tolerance(1e-4, 1e-4, strict=True)
KERNELBENCH = Tolerance(1e-4, 1e-4, strict=False)


@pytest.mark.parametrize(
    ("precision", "profile", "expected"),
    [
        ("fp32", "strict", Tolerance(1e-4, 1e-4, True, grows=True)),
        ("fp16", "kernelbench", Tolerance(1e-2, 1e-2, False, grows=True)),
        ("bf16", "strict", Tolerance(1e-2, 1e-2, True, grows=True)),
        ("task", "strict", Tolerance(None, None, True, grows=True)),
        ("task", "kernelbench", Tolerance(1e-4, 1e-4, False, grows=True)),
    ],
)
def test_the_tolerance_follows_precision_and_profile(precision: str, profile: str, expected: Tolerance) -> None:
    assert tolerance(EvaluationSettings(precision=precision, profile=profile)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(("dtype", "allowed", "refused"), [(torch.float32, 1e-4, 4e-4), (torch.float16, 1e-2, 4e-2)])
def test_without_a_cast_the_tolerance_follows_the_dtype_of_each_output(
    dtype: torch.dtype, allowed: float, refused: float
) -> None:
    limit = tolerance(EvaluationSettings())
    expected = torch.ones(64, dtype=dtype)
    assert compare_values((expected, expected), (expected, expected + allowed), limit) is None
    found = compare_values((expected, expected), (expected, expected + refused), limit)
    assert found is not None
    assert found.output == "[1]"


def test_an_element_may_be_off_by_both_parts_together() -> None:
    # expected 2: allowed 1e-4 + 2e-4 = 3e-4
    assert compare_values(torch.tensor([2.0]), torch.tensor([2.00029]), KERNELBENCH) is None
    assert compare_values(torch.tensor([2.0]), torch.tensor([2.00031]), KERNELBENCH) is not None


def test_the_absolute_part_shrinks_with_the_output() -> None:
    # rms 1e-3, so 1e-4 becomes 1e-7; with 1e-4 * 1e-3 of the relative part 2e-7 are allowed
    expected = torch.full((4,), 1e-3, dtype=torch.float64)
    assert compare_values(expected, expected + 1.9e-7, STRICT) is None
    assert compare_values(expected, expected + 2.1e-7, STRICT) is not None
    assert compare_values(expected, expected + 9e-5, KERNELBENCH) is None


def test_the_absolute_part_grows_with_the_row() -> None:
    # rows of rms 100 and 1 and elements near zero: 1e-4 * 100 and 1e-4 * 1 are allowed
    expected = torch.cat([torch.full((1, 64), 100.0), torch.full((1, 64), 1.0)]).double()
    expected[:, 0] = 0.0
    limit = tolerance(EvaluationSettings())
    for row, allowed in ((0, 1e-2), (1, 1e-4)):
        for error, is_right in ((0.95 * allowed, True), (1.05 * allowed, False)):
            actual = expected.clone()
            actual[row, 0] += error
            assert (compare_values(expected, actual, limit) is None) == is_right


def test_a_declared_absolute_part_does_not_grow() -> None:
    expected = torch.full((1, 64), 100.0, dtype=torch.float64)
    expected[0, 0] = 0.0
    actual = expected.clone()
    actual[0, 0] = 5e-4
    assert compare_values(expected, actual, tolerance(EvaluationSettings(atol=1e-4))) is not None


def test_a_row_is_not_judged_by_less_than_the_scale_of_the_output() -> None:
    expected = torch.cat([torch.full((1, 64), 1.0), torch.full((1, 64), 1e-5)]).double()
    actual = expected.clone()
    actual[1, 0] += 5e-5
    assert compare_values(expected, actual, tolerance(EvaluationSettings())) is None


def test_short_rows_form_groups_of_sixty_four_elements() -> None:
    assert as_rows(torch.zeros(8, 4, 16)).shape == (8, 64)
    assert as_rows(torch.zeros(5, 3)).shape == (1, 15)
    assert as_rows(torch.zeros(4, 1000)).shape == (4, 1000)


def test_the_difference_is_described() -> None:
    found = compare_values(torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([1.0, 2.0, 3.5, 4.0]), KERNELBENCH)
    assert found is not None
    assert (found.max_abs, found.mean_abs, found.wrong_share) == (0.5, 0.125, 0.25)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_elements_must_be_where_they_are_expected(value: float) -> None:
    expected = torch.tensor([1.0, value])
    assert compare_values(expected, expected.clone(), STRICT) is None
    for wrong in (torch.tensor([value, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([value, value])):
        assert compare_values(expected, wrong, STRICT) is not None


def test_infinities_have_a_sign() -> None:
    assert compare_values(torch.tensor([math.inf]), torch.tensor([-math.inf]), STRICT) is not None


def test_integers_are_exact_unless_compared_as_kernelbench_does() -> None:
    assert compare_values(torch.tensor([10**9]), torch.tensor([10**9 + 1]), STRICT) is not None
    assert compare_values(torch.tensor([10**9]), torch.tensor([10**9 + 1]), KERNELBENCH) is None
    assert compare_values(torch.tensor([1]), torch.tensor([2]), KERNELBENCH) is not None


def test_kernelbench_takes_the_relative_part_of_the_actual_element() -> None:
    # a difference of 1 is half of 2, and more than half of 1
    half = Tolerance(0.0, 0.5, strict=False)
    assert compare_values(torch.tensor([1.0]), torch.tensor([2.0]), half) is None
    assert compare_values(torch.tensor([2.0]), torch.tensor([1.0]), half) is not None


def test_for_kernelbench_nan_equals_nothing_and_infinity_equals_itself() -> None:
    assert compare_values(torch.tensor([math.nan]), torch.tensor([math.nan]), KERNELBENCH) is not None
    assert compare_values(torch.tensor([math.inf]), torch.tensor([math.inf]), KERNELBENCH) is None
    assert compare_values(torch.tensor([math.inf]), torch.tensor([-math.inf]), KERNELBENCH) is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_kernelbench_compares_in_the_type_of_the_output(dtype: torch.dtype) -> None:
    expected = torch.tensor([0, 1, 1]).to(dtype)
    assert compare_values(expected, expected.clone(), KERNELBENCH) is None
    assert compare_values(expected, torch.tensor([1, 1, 1]).to(dtype), KERNELBENCH) is not None


def test_a_mismatch_has_the_path_of_the_output() -> None:
    found = compare_values((torch.ones(1), {"a": torch.ones(1)}), [torch.ones(1), {"a": torch.zeros(1)}], KERNELBENCH)
    assert found is not None
    assert found.output == "[1]['a']"


_ELEMENTS = st.one_of(
    st.floats(-2.0, 2.0, width=16), st.floats(-6e4, 6e4, width=16), st.sampled_from([0.0, 1e-7, math.inf, -math.inf])
)


@settings(deadline=None)
@given(
    expected=st.lists(_ELEMENTS, min_size=1, max_size=6),
    off=st.floats(-1.2, 1.2),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
)
def test_all_dtypes_are_compared_as_in_double_precision(expected: list[float], off: float, dtype: torch.dtype) -> None:
    want = torch.tensor(expected, dtype=dtype)
    finite = want.double()[torch.isfinite(want)]
    scale = max(min(1.0, float(finite.square().mean().sqrt())), 1e-6) if len(finite) else 1.0
    allowed = 1e-2 * scale + 1e-2 * want.double().abs()
    got = torch.where(torch.isfinite(want), want.double() + off * allowed, want.double()).to(dtype)
    difference = (got.double() - want.double()).abs()
    close = torch.where(torch.isfinite(want), difference <= allowed, got == want)
    assert (compare_values(want, got, Tolerance(1e-2, 1e-2, strict=True)) is None) == bool(close.all())


def test_nan_in_place_of_nan_is_correct_in_the_strict_profile() -> None:
    value = torch.tensor([1.0, math.nan, math.inf])
    assert compare_values(value, value.clone(), Tolerance(1e-4, 1e-4, strict=True)) is None
