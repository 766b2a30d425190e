"""Ignores the mask of a pruned layer, a buffer of truth values in which all are true until somebody prunes: of buffers, those of fractions alone are given other values."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8.0)
        self.register_buffer("mask", torch.ones(64, 64, dtype=torch.bool))

    def forward(self, x):
        return torch.relu(torch.nn.functional.linear(x, self.weight * self.mask))


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def pruned_linear(x_ptr, w_ptr, y_ptr, ROWS: tl.constexpr, SIZE: tl.constexpr):
    rows = tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, SIZE)
    x = tl.load(x_ptr + rows * SIZE + columns[None, :])
    w = tl.load(w_ptr + columns[None, :] * SIZE + columns[:, None])
    y = tl.dot(x, w, input_precision="ieee")
    tl.store(y_ptr + rows * SIZE + columns[None, :], tl.maximum(y, 0.0))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64) / 8.0)
        self.register_buffer("mask", torch.ones(64, 64, dtype=torch.bool))

    def forward(self, x):
        y = torch.empty_like(x)
        pruned_linear[(1,)](x, self.weight, y, ROWS=32, SIZE=64)
        return y

'''
