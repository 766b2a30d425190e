"""Samples of large tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kernelrl_judge.samples import MOST, sampled  # noqa: E402


def test_a_large_tensor_is_sampled_at_regular_distances_whatever_its_strides() -> None:
    large = torch.arange(3 * MOST).view(3, MOST)
    few = [torch.arange(4), 2]
    for given in (large, large.T.contiguous().T):
        assert given.shape == large.shape
        small, (rows, *_), number = sampled([few[0], [given], few[1]], 7)
        assert torch.equal(rows, torch.arange(1, 3 * MOST, 3))
        assert (small is few[0], number) == (True, 2)
    assert sampled(few, -1) is few
