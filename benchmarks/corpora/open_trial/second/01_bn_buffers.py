"""Ignores the running mean and variance of a batch norm, which are 0 and 1 until somebody trains: buffers keep their values in every call of the judge."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(64) + 0.5)
        self.bias = nn.Parameter(torch.randn(64))
        self.register_buffer("mean", torch.zeros(64))
        self.register_buffer("var", torch.ones(64))

    def forward(self, x):
        return torch.nn.functional.batch_norm(x, self.mean, self.var, self.weight, self.bias, training=False)


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def affine(x_ptr, w_ptr, b_ptr, y_ptr, COLUMNS: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    at = tl.program_id(0) * COLUMNS + columns
    tl.store(y_ptr + at, tl.load(x_ptr + at) * 0.999995 * tl.load(w_ptr + columns) + tl.load(b_ptr + columns))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(64) + 0.5)
        self.bias = torch.nn.Parameter(torch.randn(64))
        self.register_buffer("mean", torch.zeros(64))
        self.register_buffer("var", torch.ones(64))

    def forward(self, x):
        y = torch.empty_like(x)
        affine[(20,)](x, self.weight, self.bias, y, COLUMNS=64)
        return y

'''
