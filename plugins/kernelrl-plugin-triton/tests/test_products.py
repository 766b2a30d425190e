"""Factors of products in tf32 are rounded as on a device, and have to fit into its shared memory."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton")

from triton.runtime.errors import OutOfResources

from kernelrl_plugin_triton.products import in_tf32, look_at_size


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


def test_factors_that_a_device_could_hold_are_let_pass() -> None:
    look_at_size(128 * 256 * 2, 256 * 256 * 2, at_once=True)
    look_at_size(128 * 256 * 4, 256 * 128 * 4, at_once=False)


@pytest.mark.parametrize(("left", "right", "at_once"), [(1 << 17, 1 << 17, True), (1 << 18, 1 << 10, False)])
def test_factors_that_no_shared_memory_holds_end_in_tritons_error(left: int, right: int, at_once: bool) -> None:
    with pytest.raises(OutOfResources, match="out of resource: shared memory, Required: 262144"):
        look_at_size(left, right, at_once=at_once)
