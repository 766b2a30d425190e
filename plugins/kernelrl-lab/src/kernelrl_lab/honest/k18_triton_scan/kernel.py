"""A scan that adds in the order of a tree."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def scan(x_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.associative_scan(tl.load(x_ptr + offsets), 0, add))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scan[(x.shape[0],)](x, y, BLOCK=64)
        return y
