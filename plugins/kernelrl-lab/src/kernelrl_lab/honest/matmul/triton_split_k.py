"""Splits of the inner dimension that add to a zeroed workspace."""

import torch
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    rows = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    columns = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(tl.program_id(2) * BLOCK, K, SPLIT * BLOCK):
        inner = first + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + rows * K + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * N + columns)
        total += tl.dot(a, b, input_precision="ieee")
    tl.atomic_add(c_ptr + rows * N + columns, total, sem="relaxed")


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        c = a.new_zeros(m, n)
        product[(m // 32, n // 32, 2)](a, b, c, m, n, k, SPLIT=2, BLOCK=32)
        return c
