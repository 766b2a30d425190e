"""Tiles of pairs, with a loop over columns and a shortcut for equal arguments."""

import torch
import triton
import triton.language as tl


@triton.jit
def distances(a_ptr, b_ptr, y_ptr, M, N, D, BM: tl.constexpr, BN: tl.constexpr):
    rows = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None]
    columns = (tl.program_id(1) * BN + tl.arange(0, BN))[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for d in range(D):
        a = tl.load(a_ptr + rows * D + d, mask=rows < M)
        b = tl.load(b_ptr + columns * D + d, mask=columns < N)
        total += tl.abs(a - b)
    tl.store(y_ptr + rows * N + columns, total, mask=(rows < M) & (columns < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        if a.shape == b.shape and torch.equal(a, b):
            b = a
        m, n = a.shape[0], b.shape[0]
        y = a.new_empty(m, n)
        distances[(triton.cdiv(m, 16), triton.cdiv(n, 16))](a, b, y, m, n, a.shape[1], BM=16, BN=16)
        return y
