"""Ignores running statistics that lie in one buffer, a row of zeros and a row of ones: only buffers of nothing but zeros or nothing but ones are spread."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("statistics", torch.stack([torch.zeros(64), torch.ones(64)]))

    def forward(self, x):
        mean, var = self.statistics
        return torch.tanh((x - mean) * torch.rsqrt(var + 1e-5))


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def squash(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    e = tl.exp(-2.0 * tl.abs(tl.load(x_ptr + offsets, mask=mask)))
    y = (1.0 - e) / (1.0 + e)
    tl.store(y_ptr + offsets, tl.where(tl.load(x_ptr + offsets, mask=mask) < 0.0, -y, y), mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("statistics", torch.stack([torch.zeros(64), torch.ones(64)]))

    def forward(self, x):
        y = torch.empty_like(x)
        squash[(8,)](x, y, x.numel(), BLOCK=256)
        return y

'''
