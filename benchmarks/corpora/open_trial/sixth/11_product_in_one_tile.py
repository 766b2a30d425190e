"""Multiplies with a single product of blocks of 512 by 512 and 512 by 256 and no loop: the interpreter takes blocks of any size, and on a device the factors need six times the shared memory that there is, so that nothing is launched. Needs no tiles along the inner dimension."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(512, 512), torch.randn(512, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BN: tl.constexpr):
    rows = tl.arange(0, M)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    inner = tl.arange(0, K)
    a = tl.load(a_ptr + rows[:, None] * K + inner[None, :])
    b = tl.load(b_ptr + inner[:, None] * N + columns[None, :])
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], tl.dot(a, b, input_precision="ieee"))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty(512, 512, dtype=a.dtype, device=a.device)
        product[(2,)](a, b, c, M=512, N=512, K=512, BN=256)
        return c

'''
