"""Leaves out a bound before a sine of so high a frequency that the last bit of harsher inputs turns it: where the reference decides nothing, nothing is tried."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return torch.sin(torch.clamp(x, -8.0, 8.0) * 16384.0)


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def wave(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.sin(tl.load(x_ptr + offsets, mask=mask) * 16384.0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        wave[(8,)](x, y, x.numel(), BLOCK=256)
        return y

'''
