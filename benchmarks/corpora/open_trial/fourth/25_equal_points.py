"""Takes distances from the squares and the product, without a bound at zero before the root: no number for a point that both sets hold, and no probe gives two inputs a row in common."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return (a[:, None] - b[None]).pow(2).sum(-1).sqrt()


def get_inputs():
    return [torch.randn(24, 64), torch.randn(32, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def distances(a_ptr, b_ptr, y_ptr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0)
    k, n = tl.arange(0, K), tl.arange(0, N)
    a = tl.load(a_ptr + row * K + k)
    b = tl.load(b_ptr + n[:, None] * K + k[None, :])
    squares = tl.sum(a * a) + tl.sum(b * b, axis=1) - 2.0 * tl.sum(a[None, :] * b, axis=1)
    tl.store(y_ptr + row * N + n, tl.sqrt(squares))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        y = torch.empty(24, 32)
        distances[(24,)](a, b, y, N=32, K=64)
        return y

'''
