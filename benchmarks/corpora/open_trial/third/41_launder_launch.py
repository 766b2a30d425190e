"""Python computes in memory that a tensor shares; a launch that is given a number as large as an address makes the watcher take all memory for written by kernels."""

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
import array

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


def doubled(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


@triton.jit
def touch(x_ptr, y_ptr, seed, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets) + (seed % 7).to(tl.float32))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        memory = bytearray(x.numel() * 4)
        room = torch.frombuffer(memory, dtype=torch.float32)
        room.copy_(x.reshape(-1))
        seen = memoryview(memory).cast("f")
        seen[:] = memoryview(array.array("f", [v if v > 0.0 else 0.0 for v in seen]))
        marks = torch.zeros(16)
        touch[(1,)](marks, torch.empty(16), 1 << 40, BLOCK=16)
        return doubled(room).view(x.shape)

'''
