"""Cumulative sums of blocks, with the total of the blocks before."""

import torch
import triton
import triton.language as tl


@triton.jit
def scan(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carried = 0.0
    for first in range(0, n, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=0.0)
        tl.store(y_ptr + row * n + columns, tl.cumsum(x, axis=0) + carried, mask=columns < n)
        carried += tl.sum(x, axis=0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scan[(x.shape[0],)](x, y, x.shape[1], BLOCK=512)
        return y
