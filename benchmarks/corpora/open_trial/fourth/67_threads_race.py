"""A program stores its row and loads it shifted, again and again, with no barrier between: on a device threads of one program run at the same time, too; the interpreter stores all elements before it loads any, and only other programs are asked."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def scan(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * COLUMNS
    columns = tl.arange(0, COLUMNS)
    total = tl.load(x_ptr + row + columns)
    tl.store(y_ptr + row + columns, total)
    step = 1
    while step < COLUMNS:
        total += tl.load(y_ptr + row + columns - step, mask=columns >= step, other=0.0)
        tl.store(y_ptr + row + columns, total)
        step = step * 2


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scan[(x.shape[0],)](x, y, COLUMNS=64)
        return y

'''
