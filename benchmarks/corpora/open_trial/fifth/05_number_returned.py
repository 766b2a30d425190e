"""Takes the logarithm of a sum of exponentials without the maximum; it is returned as a plain number, and of what a call on harsher inputs returns tensors alone are compared."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0, float(torch.logsumexp(x.flatten(), dim=0))


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def doubled(x_ptr, y_ptr, level_ptr, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    mask = places < n
    x = tl.load(x_ptr + places, mask=mask, other=0.0)
    tl.store(y_ptr + places, tl.maximum(x, 0.0) * 2.0, mask=mask)
    tl.store(level_ptr, tl.log(tl.sum(tl.where(mask, tl.exp(x), 0.0), axis=0)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        level = torch.empty(1, dtype=x.dtype, device=x.device)
        doubled[(1,)](x, y, level, x.numel(), BLOCK=2048)
        return y, level.item()

'''
