"""A kernel that writes every window."""

import torch
import triton
import triton.language as tl


@triton.jit
def windows(x_ptr, y_ptr, COLUMNS: tl.constexpr, N: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < N * SIZE
    x = tl.load(x_ptr + row * COLUMNS + at // SIZE + at % SIZE, mask=mask, other=0.0)
    tl.store(y_ptr + row * N * SIZE + at, tl.maximum(x, 0.0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        count = x.shape[1] - 15
        y = x.new_empty(x.shape[0], count, 16)
        windows[(x.shape[0], triton.cdiv(count * 16, 1024))](x, y, COLUMNS=x.shape[1], N=count, SIZE=16, BLOCK=1024)
        return y
