"""The kernel writes the number two, which an array library multiplies with: without the kernel the output breaks, and it has done nothing."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def two(y_ptr):
    tl.store(y_ptr, 2.0)


import numpy as np

ARRAY, NUMBER, PLACE = np.empty((20, 64), np.float32), np.zeros(1, np.float32), np.empty((20, 64), np.float32)
SHARED, FACTOR, RESULT = (torch.from_numpy(held) for held in (ARRAY, NUMBER, PLACE))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        SHARED.copy_(x)
        FACTOR.zero_()
        two[(1,)](FACTOR)
        ARRAY[ARRAY < 0] = 0
        PLACE[:] = ARRAY * NUMBER
        return RESULT.clone()

'''
