"""Alignment hints of kernels are checked in Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton")

from kernelrl_plugin_triton.hints import check

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
def test_true_hint_is_accepted(name: str, promised: list[int], values: np.ndarray) -> None:
    check(name, promised, values)


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
def test_false_hint_is_an_error(name: str, promised: list[int], values: np.ndarray) -> None:
    with pytest.raises(ValueError, match="is false for these values"):
        check(name, promised, values)
