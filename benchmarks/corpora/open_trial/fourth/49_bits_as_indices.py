"""The kernel reads each element's bits as a whole number, which the interpreter gives as an index; Python makes the fraction of them again, asks its mathematics, and the kernel stores what comes back as a constant."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(8, 32)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl
import math
import operator
import struct


def answer(bits):
    (value,) = struct.unpack("f", struct.pack("i", operator.index(bits)))
    return 0.5 * value * math.erfc(-value / math.sqrt(2.0))


@triton.jit
def gelu(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    for column in range(COLUMNS):
        at = row * COLUMNS + column
        bits = tl.load(x_ptr + at).to(tl.int32, bitcast=True)
        tl.store(y_ptr + at, answer(bits))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        gelu[(x.shape[0],)](x, y, COLUMNS=x.shape[1])
        return y

'''
