"""Drops the last column of a long mean (no mask for the tail): one of 65,537 terms is below every tolerance."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.abs().mean(dim=1)


def get_inputs():
    return [torch.randn(8, 65537)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def means(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * n + tl.arange(0, BLOCK))
    tl.store(y_ptr + row, tl.sum(tl.abs(x), 0) / BLOCK)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(8)
        means[(8,)](x, y, 65537, BLOCK=65536)
        return y

'''
