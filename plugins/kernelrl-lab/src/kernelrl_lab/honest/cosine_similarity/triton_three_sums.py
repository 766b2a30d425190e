"""Three sums of a pair of rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def similarity(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * n + columns, mask=columns < n, other=0.0)
    b = tl.load(b_ptr + row * n + columns, mask=columns < n, other=0.0)
    long_a = tl.maximum(tl.sqrt(tl.sum(a * a, axis=0)), 1e-8)
    long_b = tl.maximum(tl.sqrt(tl.sum(b * b, axis=0)), 1e-8)
    tl.store(y_ptr + row, tl.sum((a / long_a) * (b / long_b), axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        y = a.new_empty(a.shape[0])
        similarity[(a.shape[0],)](a, b, y, a.shape[1], BLOCK=128)
        return y
