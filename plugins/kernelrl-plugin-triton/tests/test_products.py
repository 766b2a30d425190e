"""Factors of products in tf32 are rounded as on a device."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton")

from kernelrl_plugin_triton.products import in_tf32


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1.5, 1.5),
        (1 + 2**-10, 1 + 2**-10),
        (1 + 2**-12, 1.0),
        (-1 - 3 * 2**-12, -1 - 2**-10),
        # Halves go to the even one.
        (1 + 2**-11, 1.0),
        (1 + 3 * 2**-11, 1 + 2**-9),
        (float("inf"), float("inf")),
    ],
)
def test_numbers_are_rounded_to_ten_bits(number: float, expected: float) -> None:
    assert in_tf32(np.array([number], dtype=np.float32)).tolist() == [expected]


def test_what_is_no_number_stays_none() -> None:
    assert np.isnan(in_tf32(np.array([np.nan], dtype=np.float32))).all()
