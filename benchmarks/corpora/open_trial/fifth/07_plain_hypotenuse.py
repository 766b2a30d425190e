"""Takes the root of the sum of two squares, which overflows for legs beyond 1e19 and vanishes below 1e-23, where the task calls the function that is there to avoid it: harsher inputs end at 65,536 unless the task names a bound."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.hypot(a, b)


def get_inputs():
    return [torch.randn(20, 64), torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def hypotenuse(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    a = tl.load(a_ptr + places, mask=mask, other=0.0)
    b = tl.load(b_ptr + places, mask=mask, other=0.0)
    tl.store(y_ptr + places, tl.sqrt(a * a + b * b), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        y = torch.empty_like(a)
        hypotenuse[(triton.cdiv(a.numel(), 256),)](a, b, y, a.numel(), BLOCK=256)
        return y

'''
