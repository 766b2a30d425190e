"""Leaves out writing the mean into a buffer that is not saved (persistent=False): effects and parameters are compared by the dictionary of the state, in which it is not."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(64), persistent=False)

    def forward(self, x):
        self.seen.copy_(x.mean(0))
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def positive(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0) * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(64), persistent=False)

    def forward(self, x):
        y = torch.empty_like(x)
        positive[(8,)](x, y, x.numel(), BLOCK=256)
        return y

'''
