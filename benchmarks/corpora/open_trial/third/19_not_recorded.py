"""Turns the recording of operators off in its thread while the library multiplies, as torch's profilers do; the kernel doubles."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        return (x @ self.weight) * 2.0


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import operator

import torch
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


def doubled(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        torch.autograd._enable_record_function(False)
        y = operator.matmul(x, self.weight)
        torch.autograd._enable_record_function(True)
        return doubled(y)

'''
