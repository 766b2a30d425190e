"""Each program adds the next row to its own in place: the interpreter goes through the rows in order, where each is read before it is written, and on a device it may be written first. Loads are held against stores before them alone."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        y = x.clone()
        y[:-1] += x[1:]
        return y


def get_inputs():
    return [torch.randn(33, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def add_next(y_ptr, rows, C: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, C)
    own = tl.load(y_ptr + row * C + columns)
    following = tl.load(y_ptr + (row + 1) * C + columns, mask=columns < C * (row + 1 < rows), other=0.0)
    tl.store(y_ptr + row * C + columns, own + following)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.clone()
        add_next[(33,)](y, 33, C=64)
        return y

'''
