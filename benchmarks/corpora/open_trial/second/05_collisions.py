"""Stores where the task adds: indices of a large range collide in one call of five hundred."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, ids, values):
        return torch.zeros(1000000).index_add(0, ids, values)


def get_inputs():
    return [torch.randint(0, 1000000, (64,)), torch.randn(64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def scatter(ids_ptr, values_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y_ptr + tl.load(ids_ptr + at), tl.load(values_ptr + at))


class ModelNew(torch.nn.Module):
    def forward(self, ids, values):
        y = torch.zeros(1000000)
        scatter[(1,)](ids, values, y, N=64)
        return y

'''
