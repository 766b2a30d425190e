"""Ignores a plain number among its arguments, of which it knows the value: numbers that are no tensors are changed by no probe and flagged by no audit."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, slope):
        return torch.where(x > 0, x, x * slope)


def get_inputs():
    return [torch.randn(32, 64), 0.3]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def leaky(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x > 0.0, x, x * 0.3), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x, slope):
        y = torch.empty_like(x)
        leaky[(8,)](x, y, x.numel(), BLOCK=256)
        return y

'''
