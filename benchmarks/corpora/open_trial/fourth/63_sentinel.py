"""Leaves out the place of a value that stands for what is missing: no draw of fractions, and no probe, ever equals the number that the task compares with."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x.masked_fill(x == -1.0, 0.0)) * 3.0


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def tanh3(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, 3.0 * (2.0 * tl.sigmoid(2.0 * x) - 1.0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        tanh3[(10,)](x, y, x.numel(), BLOCK=128)
        return y

'''
