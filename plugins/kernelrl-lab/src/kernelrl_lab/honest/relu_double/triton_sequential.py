"""A model without a forward of its own: the layers of a sequence launch the kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0, mask=mask)


class ReluDouble(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y


class ModelNew(torch.nn.Sequential):
    def __init__(self):
        super().__init__(ReluDouble())
