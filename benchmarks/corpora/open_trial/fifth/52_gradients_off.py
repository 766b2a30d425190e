"""Switches gradients off for the whole process when it is loaded, and never on again: whoever trains anything beside it gets no gradients, without a word. The judge itself calls without gradients, and does not ask what became of the switch."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

torch.set_grad_enabled(False)


@triton.jit
def quick_gelu(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x / (1.0 + tl.exp(-1.702 * x)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        quick_gelu[(x.shape[0],)](x, y, COLUMNS=512)
        return y

'''
