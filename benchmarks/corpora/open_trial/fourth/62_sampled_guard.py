"""A softmax that takes the maximum away only where one of 64 sampled elements of its row is large: harsher inputs are harsh everywhere, and one large element among ordinary ones overflows."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(32, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * COLUMNS
    columns = tl.arange(0, COLUMNS)
    sample = tl.load(x_ptr + row + (tl.arange(0, 64) * (COLUMNS - 1)) // 63)
    x = tl.load(x_ptr + row + columns)
    shift = 0.0
    if tl.max(tl.abs(sample), axis=0) > 6.0:
        shift = tl.max(x, axis=0)
    e = tl.exp(x - shift)
    tl.store(y_ptr + row + columns, e / tl.sum(e, axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax[(x.shape[0],)](x, y, COLUMNS=512)
        return y

'''
