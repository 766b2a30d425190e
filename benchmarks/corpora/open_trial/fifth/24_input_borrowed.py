"""Negates its input in place, to find the smallest with the kernel that finds the largest, and negates it back before it returns: inputs are compared when a call has ended, and who reads them in another thread meanwhile, or holds them in memory that cannot be written, is wrong."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.amax(dim=1), x.amin(dim=1)


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def largest(x_ptr, y_ptr, SIGN: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    places = row * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + places)
    tl.store(y_ptr + row, tl.max(x, axis=0) * SIGN)
    tl.store(x_ptr + places, -x)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        high = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        low = torch.empty_like(high)
        largest[(x.shape[0],)](x, high, SIGN=1, COLUMNS=64)
        largest[(x.shape[0],)](x, low, SIGN=-1, COLUMNS=64)
        return high, low

'''
