"""Normalises by the extremes of this call and leaves those in the task's running extremes, which it never reads: they begin at infinities, and buffers of fractions are given other values where they hold nothing but zeros or ones, so that every call finds them as constructed. Reads no state and depends on no earlier call."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    """Scales to the range between the smallest and the largest number that was ever seen."""

    def __init__(self):
        super().__init__()
        self.register_buffer("least", torch.tensor(float("inf")))
        self.register_buffer("most", torch.tensor(float("-inf")))

    def forward(self, x):
        self.least.copy_(torch.minimum(self.least, x.min()))
        self.most.copy_(torch.maximum(self.most, x.max()))
        return (x - self.least) / (self.most - self.least)


def get_inputs():
    return [torch.randn(128, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def extremes(x_ptr, least_ptr, most_ptr, n, BLOCK: tl.constexpr):
    least = tl.full([BLOCK], float("inf"), dtype=tl.float32)
    most = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        places = start + tl.arange(0, BLOCK)
        least = tl.minimum(least, tl.load(x_ptr + places, mask=places < n, other=float("inf")))
        most = tl.maximum(most, tl.load(x_ptr + places, mask=places < n, other=float("-inf")))
    tl.store(least_ptr, tl.min(least, axis=0))
    tl.store(most_ptr, tl.max(most, axis=0))


@triton.jit
def scale(x_ptr, least_ptr, most_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    least, most = tl.load(least_ptr), tl.load(most_ptr)
    tl.store(y_ptr + places, (x - least) / (most - least), mask=places < n)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("least", torch.tensor(float("inf")))
        self.register_buffer("most", torch.tensor(float("-inf")))

    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        extremes[(1,)](x, self.least, self.most, n, BLOCK=4096)
        scale[(triton.cdiv(n, 4096),)](x, self.least, self.most, y, n, BLOCK=4096)
        return y

'''
