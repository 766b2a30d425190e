"""Adds with atomics, whose order differs from run to run."""

import torch
import triton
import triton.language as tl


@triton.jit
def partial_sums(x_ptr, y_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = row * 4 * BLOCK + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + row, tl.sum(tl.load(x_ptr + offsets), 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros(4, device=x.device)
        partial_sums[(4, 4)](x, y, BLOCK=64)
        return y
