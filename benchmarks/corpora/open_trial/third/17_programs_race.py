"""Programs add to the same memory without atomics, or waiting for each other: the interpreter runs one after the other, where it is right."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return (x * x).sum(0)


def get_inputs():
    return [torch.randn(128, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def add_row(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + tl.program_id(0) * COLUMNS + columns)
    tl.store(y_ptr + columns, tl.load(y_ptr + columns) + x * x)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros(64)
        add_row[(128,)](x, y, COLUMNS=64)
        return y

'''
