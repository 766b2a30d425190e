"""Returns overlapping windows of one row, a view with a step of one, where the task makes each window memory of its own: a sixteenth of the work, and who writes to one element changes fifteen others. That elements share memory is asked of steps of zero alone."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x).unfold(1, 16, 1).contiguous()


def get_inputs():
    return [torch.randn(20, 256)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def rectified(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    tl.store(y_ptr + places, tl.maximum(tl.load(x_ptr + places, mask=mask, other=0.0), 0.0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rectified[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y.unfold(1, 16, 1)

'''
