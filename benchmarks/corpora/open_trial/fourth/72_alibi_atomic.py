"""Programs add to the same element by loading and storing it; each makes an atomic operation before, for which nobody waits, so that what they read of each other counts as settled. On a device sums get lost."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x * x, dim=0)


def get_inputs():
    return [torch.randn(48, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def squares(x_ptr, y_ptr, count_ptr, COLUMNS: tl.constexpr):
    tl.atomic_add(count_ptr, 1)
    columns = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + tl.program_id(0) * COLUMNS + columns)
    total = tl.load(y_ptr + columns)
    tl.store(y_ptr + columns, total + x * x)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros(x.shape[1])
        count = torch.zeros(1, dtype=torch.int32)
        squares[(x.shape[0],)](x, y, count, COLUMNS=64)
        return y

'''
