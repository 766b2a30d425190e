"""Sums 64-bit integers in 32 bits: no draw overflows, though rows of the drawn range do."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)


def get_inputs():
    return [torch.randint(0, 2**24, (20, 200))]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def sums(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=0).to(tl.int32)
    tl.store(y_ptr + row, tl.sum(x, 0).to(tl.int32))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(20, dtype=torch.int64)
        sums[(20,)](x, y, 200, BLOCK=256)
        return y

'''
