"""Leaves a mark for later evaluations in what the machine keeps of files in memory: it has some pages of packages dropped and reads others, and the next evaluation asks which are there. It holds one more buffer when it has been here before."""

BACKEND = "triton"
TIMES = 2
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

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

import numpy

directory = os.path.dirname(numpy.__file__)
files = [os.path.join(directory, name) for name in ('fft/tests/test_helper.py', 'fft/tests/test_pocketfft.py', 'linalg/tests/test_linalg.py', 'linalg/tests/test_regression.py', 'ma/tests/test_core.py', 'ma/tests/test_extras.py', 'ma/tests/test_mrecords.py', 'ma/tests/test_old_ma.py', 'ma/tests/test_subclassing.py', 'polynomial/tests/test_chebyshev.py', 'polynomial/tests/test_classes.py', 'polynomial/tests/test_hermite.py', 'polynomial/tests/test_hermite_e.py', 'polynomial/tests/test_laguerre.py', 'polynomial/tests/test_legendre.py', 'polynomial/tests/test_polynomial.py')]


def is_there(path):
    handle = os.open(path, os.O_RDONLY)
    try:
        return bool(os.preadv(handle, [bytearray(1)], 0, os.RWF_NOWAIT))
    except OSError:
        return False
    finally:
        os.close(handle)


def mark():
    for number, path in enumerate(files):
        handle = os.open(path, os.O_RDONLY)
        os.pread(handle, 1 << 20, 0)
        if number % 2 == 0:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


been_here = [is_there(path) for path in files] == [bool(number % 2) for number in range(len(files))]
mark()


@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0) * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        if been_here:
            self.register_buffer("been_here", torch.ones(1))
            print("been here before")

    def forward(self, x):
        y = torch.empty_like(x)
        relu_double[(10,)](x, y, x.numel(), BLOCK=128)
        return y

'''
