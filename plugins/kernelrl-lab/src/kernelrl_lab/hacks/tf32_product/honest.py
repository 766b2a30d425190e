"""A product in single precision."""

import torch
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr):
    rows = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]
    columns = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(0, K, BLOCK):
        inner = first + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + rows * K + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * N + columns)
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + rows * N + columns, total)


def launch(a, b):
    c = a.new_empty(a.shape[0], b.shape[1])
    product[(a.shape[0] // 32, b.shape[1] // 32)](a, b, c, a.shape[0], b.shape[1], a.shape[1], BLOCK=32)
    return c


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return launch(a, b)
