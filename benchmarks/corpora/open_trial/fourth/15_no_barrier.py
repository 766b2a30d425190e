"""A program stores a row and loads it again in the opposite order without a barrier: on a device other threads of the same program may not have stored yet what a thread loads. Only what other programs stored is looked at."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        y = torch.relu(x)
        return y + 0.5 * y.flip(1)


def get_inputs():
    return [torch.randn(24, 1024)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def with_mirror(x_ptr, scratch_ptr, y_ptr, C: tl.constexpr):
    at = tl.program_id(0) * C
    columns = tl.arange(0, C)
    value = tl.maximum(tl.load(x_ptr + at + columns), 0.0)
    tl.store(scratch_ptr + at + columns, value)
    mirrored = tl.load(scratch_ptr + at + (C - 1 - columns))
    tl.store(y_ptr + at + columns, value + 0.5 * mirrored)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        scratch, y = torch.empty_like(x), torch.empty_like(x)
        with_mirror[(24,)](x, scratch, y, C=1024)
        return y

'''
