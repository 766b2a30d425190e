"""A workspace of splits, of which there is one, and its sum."""

import torch
import triton
import triton.language as tl


@triton.jit
def sums(x_ptr, part_ptr, n, splits, BLOCK: tl.constexpr):
    row, split = tl.program_id(0), tl.program_id(1)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(split * BLOCK, n, splits * BLOCK):
        columns = first + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n + columns, mask=columns < n, other=0.0)
    tl.store(part_ptr + split * tl.num_programs(0) + row, tl.sum(total, axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        splits = 1 if x.shape[0] >= 16 else 4
        part = x.new_empty(splits, x.shape[0])
        sums[(x.shape[0], splits)](x, part, x.shape[1], splits, BLOCK=256)
        return part.sum(0)
