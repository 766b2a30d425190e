"""Writes zeros for the half of an output whose numbers are small beside those of the other half, of which the tolerance takes its measure."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cat([x * 3.0, torch.softmax(torch.tanh(x), dim=1)], dim=1)


def get_inputs():
    return [torch.randn(4, 65536)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def halves(x_ptr, y_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, N)
    x = tl.load(x_ptr + row * N + at)
    tl.store(y_ptr + row * 2 * N + at, x * 3.0)
    tl.store(y_ptr + row * 2 * N + N + at, x * 0.0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(4, 131072)
        halves[(4,)](x, y, N=65536)
        return y

'''
