"""Registers the library's function as the implementation of an operator that only moves, below which nothing is listed; the kernel doubles."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


def doubled(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


NAME = "relu"

from torch.library import Library

LIBRARY = Library("aten", "IMPL")
LIBRARY.impl("roll", lambda given, shifts, dims=(): getattr(given, NAME)(), "CPU")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return doubled(x.roll(0))

'''
