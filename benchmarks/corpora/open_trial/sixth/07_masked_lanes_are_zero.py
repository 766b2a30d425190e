"""Sums rows whose tail a load leaves out by its mask, without saying what stands there instead: the interpreter has zeros, and on a device it is whatever the registers held. What is loaded from outside of the tensors is no number, and what a mask leaves out is not asked. Saves filling the registers."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.square().mean(-1)


def get_inputs():
    return [torch.randn(256, 1000)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def mean_square(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n)
    tl.store(y_ptr + row, tl.sum(x * x, axis=0) / n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        mean_square[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y

'''
