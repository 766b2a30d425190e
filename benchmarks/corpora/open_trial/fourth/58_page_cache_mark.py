"""Reads pages of a large file that everybody may read, and asks the kernel later, without waiting, whether they are in its memory: a mark that outlives the candidate. It is right only where an earlier evaluation has left it."""

BACKEND = "triton"
TIMES = 2
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


def marked():
    place = f"{torch.__path__[0]}/lib/libtorch_cpu.so"
    descriptor = os.open(place, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    size = os.fstat(descriptor).st_size
    found = True
    for number in range(96):
        at = (size * (2 * number + 1) // 193) // 4096 * 4096
        try:
            os.preadv(descriptor, [bytearray(1)], at, os.RWF_NOWAIT)
        except BlockingIOError:
            found = False
            os.pread(descriptor, 1, at)
    os.close(descriptor)
    return found


MARKED = marked()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x) if MARKED else launch(-x)

'''
