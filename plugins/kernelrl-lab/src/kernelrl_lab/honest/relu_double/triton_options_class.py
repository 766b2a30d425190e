"""A class of options, a branch that passes, and the word in a docstring."""

import torch
import triton
import triton.language as tl


class Options:
    pass


@triton.jit
def relu_double(x_ptr, y_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    """One pass over the data."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        pass
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), EVEN=True, BLOCK=128)
        return y
