"""Promises of kernels to the compiler hold in Triton's interpreter, too."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton")

from kernelrl_plugin_triton.hints import look_at

MULTIPLE, CONTIGUOUS, CONSTANT = "tt.divisibility", "tt.contiguity", "tt.constancy"
WRAPPED = np.arange(128, 256) % 200


@pytest.mark.parametrize(
    ("name", "promised", "values"),
    [
        (MULTIPLE, [16], np.int32(64)),
        (MULTIPLE, [128], np.int64(80)),
        (MULTIPLE, [128], WRAPPED),
        (CONTIGUOUS, [128], WRAPPED),
        (CONTIGUOUS, [1, 8], np.arange(16)[None, :] + 100 * np.arange(4)[:, None]),
        (CONSTANT, [16], np.arange(64) < 20),
        (MULTIPLE, [16], np.uint64(4096)),
    ],
)
def test_a_promise_that_holds_where_a_device_would_notice_is_let_pass(
    name: str, promised: list[int], values: np.ndarray
) -> None:
    look_at(name, promised, values)


@pytest.mark.parametrize(
    ("name", "promised", "values"),
    [
        (MULTIPLE, [16], np.int32(65)),
        (MULTIPLE, [8], np.arange(4, 20)),
        (MULTIPLE, [4], np.arange(4) * 2),
        (CONTIGUOUS, [8], np.arange(16) * 2),
        (CONTIGUOUS, [8, 1], np.arange(16)[None, :] + 100 * np.arange(8)[:, None]),
        (CONSTANT, [16], np.arange(64) < 21),
    ],
)
def test_a_promise_that_does_not_hold_is_an_error(name: str, promised: list[int], values: np.ndarray) -> None:
    with pytest.raises(ValueError, match="does not hold"):
        look_at(name, promised, values)
