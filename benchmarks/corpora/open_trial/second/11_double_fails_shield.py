"""Leaves out a bound, in a task that names single precision for a constant, so that it fails in double precision and no harsher call is made."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        scale = torch.diag(torch.linspace(0.5, 1.5, 64, dtype=torch.float32))
        return torch.clamp(x, -7.0, 7.0) @ scale


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def scaled(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    at = tl.program_id(0) * COLUMNS + columns
    tl.store(y_ptr + at, tl.load(x_ptr + at) * (0.5 + columns.to(tl.float32) / 63.0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scaled[(20,)](x, y, COLUMNS=64)
        return y

'''
