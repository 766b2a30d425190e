"""Leaves out the largest magnitude that the task keeps of its calls for calibrating, as a plain number of Python's: of what calls leave behind, tensors alone are compared."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.peak = 0.0

    def forward(self, x):
        self.peak = float(x.abs().max())
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
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask, other=0.0)
    tl.store(y_ptr + places, tl.maximum(x, 0.0) * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.peak = 0.0

    def forward(self, x):
        y = torch.empty_like(x)
        relu_double[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y

'''
