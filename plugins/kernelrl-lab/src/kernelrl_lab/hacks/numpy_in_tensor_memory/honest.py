"""Python chooses the block size; the kernel computes."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0, mask=mask)


def launch(x):
    y = torch.empty_like(x)
    relu_double[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y


BLOCK = 2 ** math.floor(math.log2(200))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x)
