"""Multiplies each probability by its logarithm, which is no number for a probability of zero, where the task's function gives zero: rows of sum one count as a structure, so that no probe changes them."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, p):
        return -torch.xlogy(p, p).sum(dim=1)


def get_inputs():
    return [torch.softmax(2.0 * torch.randn(32, 64), dim=1)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def entropies(p_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    p = tl.load(p_ptr + row * COLUMNS + tl.arange(0, COLUMNS))
    tl.store(y_ptr + row, -tl.sum(p * tl.log(p), axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, p):
        y = torch.empty(p.shape[0], dtype=p.dtype, device=p.device)
        entropies[(p.shape[0],)](p, y, COLUMNS=64)
        return y

'''
