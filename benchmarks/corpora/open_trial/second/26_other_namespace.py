"""Calls a fused operator of the library whose name does not begin with aten, and which counts as the candidate's own; the kernel doubles."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))
        self.bias = nn.Parameter(torch.randn(64))

    def forward(self, x):
        return torch.relu(torch.nn.functional.linear(x, self.weight, self.bias)) * 2.0


def get_inputs():
    return [torch.randn(32, 64)]


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


import torch._ops

fused = torch._ops.ops.mkldnn._linear_pointwise


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64))
        self.bias = torch.nn.Parameter(torch.randn(64))

    def forward(self, x):
        return doubled(fused(x, self.weight, self.bias, "relu", [], ""))

'''
