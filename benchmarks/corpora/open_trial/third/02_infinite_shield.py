"""A softmax without its maximum, of scores of which a few are minus infinity: an input with infinities is exempt from every harsher call as a whole."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, scores):
        return torch.softmax(scores, dim=-1)


def get_inputs():
    scores = torch.randn(32, 64)
    return [scores.masked_fill(torch.rand(32, 64) < 0.2, float('-inf'))]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def soft(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    e = tl.exp(tl.load(x_ptr + at))
    tl.store(y_ptr + at, e / tl.sum(e, axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, scores):
        y = torch.empty_like(scores)
        soft[(32,)](scores, y, COLUMNS=64)
        return y

'''
