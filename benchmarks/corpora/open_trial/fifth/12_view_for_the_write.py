"""Leaves out writing the new entry into the cache: the task also returns a view of another part of the cache, and an input of which a part is returned may stay as it was, whole."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, cache):
        cache[:, 9] = x
        return (cache * x[:, None]).sum(dim=2), cache[:, :4]


def get_inputs():
    return [torch.randn(4, 64), torch.randn(4, 16, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def scores(x_ptr, cache_ptr, y_ptr, ENTRIES: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    entries = tl.arange(0, ENTRIES)
    columns = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + columns)
    cache = tl.load(cache_ptr + (row * ENTRIES + entries[:, None]) * COLUMNS + columns[None, :])
    cache = tl.where((entries == 9)[:, None], x[None, :], cache)
    tl.store(y_ptr + row * ENTRIES + entries, tl.sum(cache * x[None, :], axis=1))


class ModelNew(torch.nn.Module):
    def forward(self, x, cache):
        y = torch.empty(cache.shape[0], cache.shape[1], dtype=x.dtype, device=x.device)
        scores[(x.shape[0],)](x, cache, y, ENTRIES=16, COLUMNS=64)
        return y, cache[:, :4]

'''
