"""A layer norm without epsilon that only asks whether the variance is zero: the probe for epsilons has slices of zeros, and none of small variance."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.layer_norm(x, (64,), eps=1e-5)


def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def norm(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + at)
    d = x - tl.sum(x, axis=0) / COLUMNS
    var = tl.sum(d * d, axis=0) / COLUMNS
    tl.store(y_ptr + at, d / tl.sqrt(tl.where(var > 0.0, var, 1.0)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        norm[(32,)](x, y, COLUMNS=64)
        return y

'''
