"""A comparison of numbers and bins, with integer results that are converted last."""

import torch
import triton
import triton.language as tl


@triton.jit
def count(x_ptr, y_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    bins = tl.arange(0, BINS)
    found = tl.zeros((BINS,), tl.int32)
    for first in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=-1)
        found += tl.sum((x[:, None] == bins[None, :]).to(tl.int32), axis=0)
    tl.atomic_add(y_ptr + bins, found)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros(64, dtype=torch.int32, device=x.device)
        count[(4,)](x, y, x.numel(), BINS=64, BLOCK=128)
        return y.to(torch.int64)
