"""Asks for a product in tf32 where the task is in single precision: on a device its errors are beyond the tolerance, and the interpreter multiplies in single precision whatever is asked for."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b)


def get_inputs():
    return [torch.randn(64, 128), torch.randn(128, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, y_ptr, ROWS: tl.constexpr, INNER: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, COLUMNS)[None, :]
    a = tl.load(a_ptr + rows * INNER + tl.arange(0, INNER)[None, :])
    b = tl.load(b_ptr + tl.arange(0, INNER)[:, None] * COLUMNS + columns)
    y = tl.dot(a, b, input_precision="tf32")
    tl.store(y_ptr + rows * COLUMNS + columns, tl.maximum(y, 0.0))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        y = torch.empty(64, 64, dtype=a.dtype, device=a.device)
        product[(1,)](a, b, y, ROWS=64, INNER=128, COLUMNS=64)
        return y

'''
