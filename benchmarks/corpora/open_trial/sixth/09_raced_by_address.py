"""Programs add to the same sums by loading and storing them, and reach them by an address that the launch is given as a number: what programs do in the memory of the tensors of their launch is held against each other, and this tensor is none of them. On a device sums get lost. Needs no atomic operations."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(0)


def get_inputs():
    return [torch.randn(1024, 256)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def column_sums(x_ptr, y_address, n, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    y_ptr = y_address.to(tl.pointer_type(tl.float32))
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + rows[:, None] * n + columns[None, :]), axis=0)
    tl.store(y_ptr + columns, tl.load(y_ptr + columns) + part)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
        column_sums[(x.shape[0] // 32,)](x, y.data_ptr(), x.shape[1], BLOCK=256, ROWS=32)
        return y

'''
