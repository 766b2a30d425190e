"""Two elements per lane, joined and split."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK * 2 + tl.arange(0, BLOCK) * 2
    even = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    odd = tl.load(x_ptr + offsets + 1, mask=offsets + 1 < n, other=0.0)
    both = tl.join(tl.maximum(even, 0.0), tl.maximum(odd, 0.0)) * 2.0
    even, odd = tl.split(both)
    tl.store(y_ptr + offsets, even, mask=offsets < n)
    tl.store(y_ptr + offsets + 1, odd, mask=offsets + 1 < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_double[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=128)
        return y
