"""Leaves out a bound, in a task whose table takes more than the 256 MiB up to which harsher calls are made."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.rand(1100000, 64))

    def forward(self, x, ids):
        return torch.clamp(self.table[ids] + x, -6.5, 6.5) * 2.0


def get_inputs():
    return [torch.randn(32, 64), torch.randint(0, 1100000, (32,))]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def rows(x_ptr, ids_ptr, table_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    place = tl.load(ids_ptr + row)
    x = tl.load(x_ptr + row * COLUMNS + columns)
    tl.store(y_ptr + row * COLUMNS + columns, (tl.load(table_ptr + place * COLUMNS + columns) + x) * 2.0)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.rand(1100000, 64))

    def forward(self, x, ids):
        y = torch.empty_like(x)
        rows[(32,)](x, ids, self.table, y, COLUMNS=64)
        return y

'''
