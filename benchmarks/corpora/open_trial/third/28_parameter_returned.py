"""Returns its parameter itself where the task returns a copy of it: outputs are looked at for the memory of inputs and of each other, not of the module, which whoever changes the output changes."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(128, 64))
        self.scale = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x):
        return x * self.scale, self.codes.detach().clone()


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x_ptr, scale_ptr, y_ptr, COLUMNS: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    at = tl.program_id(0) * COLUMNS + columns
    tl.store(y_ptr + at, tl.load(x_ptr + at) * tl.load(scale_ptr + columns))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = torch.nn.Parameter(torch.randn(128, 64))
        self.scale = torch.nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        scaled[(32,)](x, self.scale, y, COLUMNS=64)
        return y, self.codes.detach()

'''
