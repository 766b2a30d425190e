"""Each program reads the sum that the program before it has stored, after an atomic operation on a number of its own that nobody waits for: programs that made any atomic operation count as having met."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.cumsum(x, dim=0)


def get_inputs():
    return [torch.randn(24, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def running(x_ptr, y_ptr, own_ptr, C: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, C)
    tl.atomic_add(own_ptr + row, 1)
    before = tl.load(y_ptr + (row - 1) * C + columns, mask=columns < C * (row > 0), other=0.0)
    tl.store(y_ptr + row * C + columns, before + tl.load(x_ptr + row * C + columns))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        running[(24,)](x, y, torch.zeros(24, dtype=torch.int32), C=64)
        return y

'''
