"""Returns a view with torch's lazy sign, which the library carries out when the result is copied; the kernel only moves."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.neg(x)


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def spread(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + 2 * offsets, x * 0.0, mask=mask)
    tl.store(y_ptr + 2 * offsets + 1, x, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        pairs = torch.empty(20, 64, 2)
        spread[(10,)](x, pairs, x.numel(), BLOCK=128)
        return torch.view_as_complex(pairs).mH.mT.imag

'''
