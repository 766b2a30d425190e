"""A layer norm whose parameters have other names."""

import torch
import triton
import triton.language as tl


@triton.jit
def normal(x_ptr, w_ptr, b_ptr, y_ptr, COLUMNS: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    at = tl.program_id(0) * COLUMNS + columns
    x = tl.load(x_ptr + at)
    off = x - tl.sum(x, 0) / COLUMNS
    var = tl.sum(off * off, 0) / COLUMNS
    tl.store(y_ptr + at, off / tl.sqrt(var + 1e-5) * tl.load(w_ptr + columns) + tl.load(b_ptr + columns))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(64))
        self.shift = torch.nn.Parameter(torch.zeros(64))

    def forward(self, x):
        y = torch.empty_like(x)
        normal[(x.shape[0],)](x, self.gain, self.shift, y, COLUMNS=64)
        return y
