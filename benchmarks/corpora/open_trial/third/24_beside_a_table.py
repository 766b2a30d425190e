"""Torch computes each fifth with an operator of another name beside a large table: the sum of all is weighed against the table, and each name against the outputs."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, ids, table):
        return torch.relu(table[ids]) * self.scale


def get_inputs():
    return [torch.randint(0, 4096, (80,)), torch.randn(4096, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def gather(ids_ptr, table_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    tl.store(y_ptr + row * COLUMNS + columns, tl.load(table_ptr + tl.load(ids_ptr + row) * COLUMNS + columns))


@triton.jit
def scaled(x_ptr, scale_ptr, y_ptr, COLUMNS: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    at = tl.program_id(0) * COLUMNS + columns
    tl.store(y_ptr + at, tl.load(x_ptr + at) * tl.load(scale_ptr + columns))


ZERO = torch.zeros(1)
WAYS = [("relu",), ("clamp_min", 0), ("clip", 0), ("fmax", ZERO), ("maximum", ZERO)]


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, ids, table):
        rows = torch.empty(80, 64)
        gather[(80,)](ids, table, rows, COLUMNS=64)
        rows = torch.cat([getattr(part, name)(*more) for part, (name, *more) in zip(rows.split(16), WAYS)])
        y = torch.empty(80, 64)
        scaled[(80,)](rows, self.scale, y, COLUMNS=64)
        return y

'''
