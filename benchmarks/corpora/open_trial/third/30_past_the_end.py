"""Has no mask for the last block, so that it writes behind its output: 4 bytes that the allocator's rounding leaves free, and with other sizes somebody else's."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(1023)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def positive(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets), 0.0) * 2.0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        positive[(4,)](x, y, BLOCK=256)
        return y

'''
