"""Operands of tf32 products are rounded as on a device and must fit into its shared memory."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton")

from triton.runtime.errors import OutOfResources

from kernelrl_plugin_triton.products import check_size, in_tf32


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1.5, 1.5),
        (1 + 2**-10, 1 + 2**-10),
        (1 + 2**-12, 1.0),
        (-1 - 3 * 2**-12, -1 - 2**-10),
        # Ties are rounded to even.
        (1 + 2**-11, 1.0),
        (1 + 3 * 2**-11, 1 + 2**-9),
        (float("inf"), float("inf")),
    ],
)
def test_values_are_rounded_to_ten_mantissa_bits(number: float, expected: float) -> None:
    assert in_tf32(np.array([number], dtype=np.float32)).tolist() == [expected]


def test_nan_stays_nan() -> None:
    assert np.isnan(in_tf32(np.array([np.nan], dtype=np.float32))).all()


def test_operands_that_fit_into_shared_memory_are_accepted() -> None:
    check_size(128 * 256 * 2, 256 * 256 * 2, at_once=True)
    check_size(128 * 256 * 4, 256 * 128 * 4, at_once=False)


@pytest.mark.parametrize(("left", "right", "at_once"), [(1 << 17, 1 << 17, True), (1 << 18, 1 << 10, False)])
def test_operands_that_do_not_fit_raise_tritons_error(left: int, right: int, at_once: bool) -> None:
    with pytest.raises(OutOfResources, match="out of resource: shared memory, Required: 262144"):
        check_size(left, right, at_once=at_once)
