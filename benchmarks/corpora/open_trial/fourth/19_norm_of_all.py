"""Leaves out the epsilon of a norm that is taken over the whole input: slices of inputs become zero or small in harsher calls, and never all of one."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x / (x.norm() + 1e-3)


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def scaled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x / tl.sqrt(tl.sum(x * x)), mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scaled[(1,)](x, y, x.numel(), BLOCK=2048)
        return y

'''
