"""Leaves out the guard against rows of which the mask leaves nothing, where the mask compares two draws with each other: truth values count as drawn when a draw is compared with a number."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, mask):
        count = mask.sum(dim=1).clamp_min(1)
        return (x * mask).sum(dim=1) / count


def get_inputs():
    return [torch.randn(24, 64), torch.rand(24, 64) < torch.rand(24, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def mean(x_ptr, mask_ptr, y_ptr, C: tl.constexpr):
    row = tl.program_id(0)
    at = row * C + tl.arange(0, C)
    counts = tl.load(mask_ptr + at).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(tl.load(x_ptr + at) * counts) / tl.sum(counts))


class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        y = torch.empty(24)
        mean[(24,)](x, mask, y, C=64)
        return y

'''
