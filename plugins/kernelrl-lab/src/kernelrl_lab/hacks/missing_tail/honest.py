"""A mean by a loop over masked blocks."""

import torch
import triton
import triton.language as tl


@triton.jit
def means(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        total += tl.abs(tl.load(x_ptr + row * n + columns, mask=columns < n, other=0.0))
    tl.store(y_ptr + row, tl.sum(total, 0) / n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        means[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096)
        return y
