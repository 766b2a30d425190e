"""Sorts by counting how many are smaller, so that equal numbers go to one place and leave holes: whole numbers of a wide range hardly ever meet, and where a task sorts no probe changes them."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, keys):
        return torch.sort(keys, dim=1).values


def get_inputs():
    return [torch.randint(0, 2**40, (32, 64))]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def ranked(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + columns)
    rank = tl.sum((x[None, :] < x[:, None]).to(tl.int32), axis=1)
    tl.store(y_ptr + row * COLUMNS + rank, x)


class ModelNew(torch.nn.Module):
    def forward(self, keys):
        y = torch.empty_like(keys)
        ranked[(keys.shape[0],)](keys, y, COLUMNS=64)
        return y

'''
