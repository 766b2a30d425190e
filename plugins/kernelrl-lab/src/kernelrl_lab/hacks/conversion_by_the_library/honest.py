"""A kernel that truncates and doubles, with an integer result that is converted last."""

import torch
import triton
import triton.language as tl


@triton.jit
def double_trunc(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    whole = tl.where(x < 0.0, tl.ceil(x), tl.floor(x))
    tl.store(y_ptr + offsets, whole * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double_trunc[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y.to(x.dtype)
