"""Leaves out a bound that ordinary inputs do not reach, in a task whose exponential overflows on harsher inputs, so that no harsher call is made."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(8.0 * x) + torch.clamp(x, -7.0, 7.0)


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def made(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.exp(8.0 * x) + x, mask=mask)


def launch(x):
    y = torch.empty_like(x)
    made[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x)

'''
