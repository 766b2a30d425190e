"""The kernel makes a small matrix of a large input, and the library takes its exponential: work is weighed by elements, and these are few."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.matrix_exp(x.T @ x / 4096.0)


def get_inputs():
    return [torch.randn(4096, 32)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def products(x_ptr, y_ptr, rows, N: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, N)[None, :]
    total = tl.zeros((N, N), tl.float32)
    for first in range(0, rows, BLOCK):
        part = tl.load(x_ptr + (first + tl.arange(0, BLOCK)[:, None]) * N + columns)
        total += tl.dot(tl.trans(part), part, input_precision="ieee")
    tl.store(y_ptr + tl.arange(0, N)[:, None] * N + columns, total / rows)


def gram(x):
    y = torch.empty(32, 32)
    products[(1,)](x, y, 4096, N=32, BLOCK=256)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return gram(x).matrix_exp()

'''
