"""The kernel reads its values as text, which only the interpreter shows, and Python computes with them."""

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

@triton.jit
def relu_double(x_ptr, y_ptr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    for at in range(BLOCK):
        value = float(str(tl.load(x_ptr + first + at)).strip("[]"))
        tl.store(y_ptr + first + at, max(value, 0.0) * 2.0)


def launch(x):
    y = torch.empty_like(x)
    relu_double[(20,)](x, y, BLOCK=64)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x)

'''
