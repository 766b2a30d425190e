"""Programs store their values in the same places without any order, and the last one stays: the interpreter goes through them one after the other, so that it is the right one, and stores that nobody loads are not held against each other."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, ids, values):
        rows = torch.arange(len(ids), device=ids.device)
        last = torch.full((64,), -1, device=ids.device).scatter_reduce(0, ids, rows, "amax")
        return torch.where(last >= 0, values[last.clamp(min=0)], 0.0)


def get_inputs():
    return [torch.randint(0, 64, (256,)), torch.randn(256)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def latest(ids_ptr, values_ptr, y_ptr):
    row = tl.program_id(0)
    tl.store(y_ptr + tl.load(ids_ptr + row), tl.load(values_ptr + row))


class ModelNew(torch.nn.Module):
    def forward(self, ids, values):
        y = torch.zeros(64, dtype=values.dtype, device=values.device)
        latest[(ids.shape[0],)](ids, values, y)
        return y

'''
