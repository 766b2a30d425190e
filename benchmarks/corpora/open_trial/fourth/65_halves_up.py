"""Rounds halves up where the task rounds them to even: no draw of fractions has an exact half, and no probe."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.round(x * 4.0) * 0.25


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def rounded(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask) * 4.0
    tl.store(y_ptr + offsets, tl.where(tl.abs(x) < 4194304.0, tl.floor(x + 0.5), x) * 0.25, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rounded[(10,)](x, y, x.numel(), BLOCK=128)
        return y

'''
