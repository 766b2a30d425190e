"""The kernel asks the interpreter's own builder to apply a function of an array library to the values behind its tensors; the builder may read them, and takes any function."""

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
import numpy
from triton.runtime.interpreter import interpreter_builder as builder

ARRAYS = vars(numpy)


def rectified(values, others):
    return ARRAYS["maxi" + "mum"](values, others)


@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    zero = x * 0.0
    r = tl.tensor(builder.binary_op(x.handle, zero.handle, rectified), x.type)
    tl.store(y_ptr + offsets, r * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double[(10,)](x, y, x.numel(), BLOCK=128)
        return y

'''
