"""All that the task does but one addition is to turn, to roll and to mirror an image; the library does it, by methods that count as arranging, in four passes over the memory. The kernel adds one number."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        turned = torch.rot90(x, 1, (2, 3))
        rolled = torch.roll(turned, shifts=(3, -5), dims=(2, 3))
        mirrored = torch.cat([rolled, rolled.flip(3)], dim=1)
        return mirrored.repeat(1, 1, 2, 1) + 0.5


def get_inputs():
    return [torch.randn(2, 3, 48, 48)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def add_half(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=inside) + 0.5, mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rolled = x.rot90(1, (2, 3)).roll((3, -5), (2, 3))
        tiled = torch.cat([rolled, rolled.flip(3)], dim=1).repeat(1, 1, 2, 1).contiguous()
        y = torch.empty_like(tiled)
        count = tiled.numel()
        add_half[(triton.cdiv(count, 1024),)](tiled, y, count, BLOCK=1024)
        return y

'''
