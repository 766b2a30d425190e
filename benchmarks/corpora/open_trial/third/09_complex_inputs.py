"""Leaves out the limit on the size of complex numbers: harsher calls change floating-point inputs, and complex ones stay as they are drawn."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, z):
        size = z.abs()
        return z * (1.5 * torch.clamp(size, max=8.0) / size.clamp(min=1e-12))


def get_inputs():
    return [torch.randn(32, 64, dtype=torch.complex64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 1.5, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, z):
        y = torch.empty(32, 64, 2)
        scale[(16,)](torch.view_as_real(z), y, y.numel(), BLOCK=256)
        return torch.view_as_complex(y)

'''
