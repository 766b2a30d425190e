"""A table of launchers, and a forward that the constructor assigns from it by a computed name."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0, mask=mask)


def launch_blocked(x):
    y = torch.empty_like(x)
    relu_double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


LAUNCHERS = {"launch_blocked": launch_blocked}


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.forward = LAUNCHERS["_".join(("launch", "blocked"))]
