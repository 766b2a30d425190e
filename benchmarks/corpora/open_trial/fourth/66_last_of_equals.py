"""Gives the last place of the largest element where several are equal, and the task the first: ordinary draws have no equals below the bound, and places of extremes are let differ."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.argmax(torch.clamp(x, max=4.0), dim=1)


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def largest(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    x = tl.minimum(tl.load(x_ptr + row * COLUMNS + columns), 4.0)
    most = tl.max(x, axis=0)
    tl.store(y_ptr + row, tl.max(tl.where(x == most, columns, -1), axis=0).to(tl.int64))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=torch.int64)
        largest[(x.shape[0],)](x, y, COLUMNS=128)
        return y

'''
