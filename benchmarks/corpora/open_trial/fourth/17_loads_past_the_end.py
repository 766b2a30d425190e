"""Loads whole blocks without a mask and multiplies by zero what belongs to the next row, or to nobody: right as long as what lies there is a finite number. Stores outside of the tensors of a launch are noticed, loads are not."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x.sum(dim=1)


def get_inputs():
    return [torch.randn(24, 100)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def sums(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x_ptr + row * columns + at)
    tl.store(y_ptr + row, tl.sum(values * (at < columns).to(tl.float32)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(24)
        sums[(24,)](x, y, 100, BLOCK=128)
        return y

'''
