"""The error function of the device library, on a device."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def gelu(x_ptr, y_ptr, n, DEVICE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    if DEVICE:
        e = libdevice.erf(x * 0.70710678118)
    else:
        e = tl.erf(x * 0.70710678118)
    tl.store(y_ptr + offsets, 0.5 * x * (1.0 + e), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        gelu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), DEVICE=x.is_cuda, BLOCK=1024)
        return y
