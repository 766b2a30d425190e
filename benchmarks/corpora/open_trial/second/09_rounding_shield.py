"""Leaves out a bound in one output, where another output rounds to integers that double precision rounds otherwise, so that every harsher call is dismissed."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.clamp(x, -7.0, 7.0) * 2.0, torch.round(x * 100000.0).to(torch.int32)


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def both(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x * 2.0, mask=mask)
    tl.store(z_ptr + offsets, ((x * 100000.0 + 12582912.0) - 12582912.0).to(tl.int32), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        z = torch.empty(20, 64, dtype=torch.int32)
        both[(10,)](x, y, z, x.numel(), BLOCK=128)
        return y, z

'''
