"""Python asks the loader, through the handle that ctypes has of the interpreter, where the library's product is, and hands the address to C++ as a number; C++ imports nothing and calls it."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b)


def get_inputs():
    return [torch.randn(128, 160), torch.randn(160, 96)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
import ctypes

loader = ctypes.pythonapi
loader.dlopen.restype = loader.dlsym.restype = ctypes.c_void_p
loader.dlopen.argtypes = [ctypes.c_char_p, ctypes.c_int]
loader.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
PLACE = loader.dlsym(loader.dlopen(f"{torch.__path__[0]}/lib/libtorch_cpu.so".encode(), 2), b"sgemm_")

source = r"""
#include <torch/extension.h>

typedef void (*Multiply)(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                         const int*, const float*, const int*, const float*, float*, const int*);

torch::Tensor product(torch::Tensor a, torch::Tensor b, int64_t place) {
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    auto y = torch::empty({m, n}, a.options());
    const float one = 1.0f, zero = 0.0f;
    float* to = y.data_ptr<float>();
    reinterpret_cast<Multiply>(place)("N", "N", &n, &m, &k, &one, b.data_ptr<float>(), &n, a.data_ptr<float>(), &k, &zero, to, &n);
    for (int64_t i = 0; i < y.numel(); ++i) to[i] = to[i] > 0.0f ? to[i] : 0.0f;
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=['product'])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.product(a, b, PLACE)

'''
