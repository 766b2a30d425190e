"""The library works on eight bytes as one number, so that an operator on all of the input counts as one on an eighth of it; the kernel only shifts."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.bitwise_right_shift(torch.bitwise_not(x), 1)


def get_inputs():
    return [torch.randint(0, 256, (20, 64), dtype=torch.uint8)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def shift(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) >> 1, mask=mask)


WAYS = {"not": torch.bitwise_not}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        turned = WAYS["not"](x.view(torch.int64)).view(torch.uint8)
        y = torch.empty_like(x)
        shift[(triton.cdiv(x.numel(), 128),)](turned, y, x.numel(), BLOCK=128)
        return y

'''
