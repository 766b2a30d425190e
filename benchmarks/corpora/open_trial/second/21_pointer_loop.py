"""Python computes through pointers to the memory of the tensors; the kernel doubles."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


def doubled(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


import ctypes

FLOATS = ctypes.POINTER(ctypes.c_float)


def positive(x):
    y = torch.empty_like(x)
    given = ctypes.cast(x.data_ptr(), FLOATS)
    made = ctypes.cast(y.data_ptr(), FLOATS)
    for at in range(x.numel()):
        value = given[at]
        made[at] = value if value > 0.0 else 0.0
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return doubled(positive(x))

'''
