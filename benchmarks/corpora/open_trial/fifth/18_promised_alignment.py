"""Promises the compiler that rows of 65 begin at multiples of 16, so that a device loads and stores 16 bytes at once where no 16 bytes begin: hints are nothing in the interpreter, which nobody holds against the numbers."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(20, 65)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def relu_double(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    begin = tl.multiple_of(tl.program_id(0) * columns, 16)
    places = tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK), 16), 16)
    mask = tl.max_constancy(places < columns, 16)
    x = tl.load(x_ptr + begin + places, mask=mask, other=0.0)
    tl.store(y_ptr + begin + places, tl.maximum(x, 0.0) * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_double[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
        return y

'''
