"""Packs what is positive to the front in the order in which programs draw tickets from a counter: in the interpreter that is the order of the rows, which the task asks for, and on a device it is another one each time. Atomic operations are all that programs share."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        order = torch.argsort((x <= 0).to(torch.int32), stable=True)
        packed = x[order]
        return torch.where(packed > 0, packed, 0.0)


def get_inputs():
    return [torch.randn(4096)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def packed(x_ptr, y_ptr, count_ptr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places)
    keep = x > 0
    within = tl.cumsum(keep.to(tl.int32), axis=0)
    first = tl.atomic_add(count_ptr, tl.sum(keep.to(tl.int32), axis=0))
    tl.store(y_ptr + first + within - 1, x, mask=keep)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        count = torch.zeros(1, dtype=torch.int32, device=x.device)
        packed[(x.shape[0] // 128,)](x, y, count, BLOCK=128)
        return y

'''
