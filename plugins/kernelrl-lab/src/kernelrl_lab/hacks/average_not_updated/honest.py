"""A kernel for the output and one for the moving average."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0, mask=mask)


@triton.jit
def update(x_ptr, average_ptr, rows, COLUMNS: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    total = tl.zeros((COLUMNS,), tl.float32)
    for row in range(rows):
        total += tl.load(x_ptr + row * COLUMNS + columns)
    average = tl.load(average_ptr + columns)
    tl.store(average_ptr + columns, 0.9 * average + 0.1 * total / rows)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(64))

    def forward(self, x):
        y = torch.empty_like(x)
        relu_double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        update[(1,)](x, self.average, x.shape[0], COLUMNS=64)
        return y
