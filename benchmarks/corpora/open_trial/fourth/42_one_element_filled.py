"""An array library computes in a tensor's memory; torch then fills one element of it, and the watcher takes all of the storage for written by torch."""

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
import numpy

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


def doubled(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


class Seen:
    def __init__(self, tensor):
        self.tensor = tensor

    @property
    def __array_interface__(self):
        return {"data": (self.tensor.data_ptr(), False), "shape": tuple(self.tensor.shape), "typestr": "<f4", "version": 3}


ARRAYS = vars(numpy)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        r = torch.empty_like(x)
        ARRAYS["maxi" + "mum"](numpy.asarray(Seen(x)), numpy.float32(0.0), out=numpy.asarray(Seen(r)))
        r.view(-1)[:1].fill_(max(x[0, 0].item(), 0.0))
        return doubled(r)

'''
