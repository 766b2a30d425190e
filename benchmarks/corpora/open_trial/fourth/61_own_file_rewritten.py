"""After the rules have read its source it writes another text into its own file: Triton reads a kernel's source when it is first launched, and gets one whose body calls an array library."""

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


@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    r = tl.where(x > 0, x, 0.0)
    tl.store(y_ptr + offsets, r * 2.0, mask=mask)


with open(__file__) as file:
    text = file.read()
BEFORE = "tl.where(x > 0, x, 0.0)"
AFTER = "tl.tensor(builder.binary_op(x.handle, (x * 0.0).handle, numpy.maximum), x.type)"
with open(__file__, "w") as file:
    file.write(text.replace(BEFORE, AFTER, 1))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_double[(10,)](x, y, x.numel(), BLOCK=128)
        return y

'''
