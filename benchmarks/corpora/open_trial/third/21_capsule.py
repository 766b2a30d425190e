"""Hands the input to another library in a capsule that a function and no method makes; that library computes with operators of Python's, and C++ doubles: what is written past torch is watched in the interpreter alone."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
from torch.utils.dlpack import to_dlpack
import numpy

source = """
#include <torch/extension.h>
torch::Tensor doubled(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] * 2.0f;
    return out;
}
"""

extension = load_inline(name="a_21_capsule", cpp_sources=source, functions=['doubled'])


class Held:
    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **_):
        return to_dlpack(self.tensor)

    def __dlpack_device__(self):
        return (1, 0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        array = numpy.from_dlpack(Held(x))
        return extension.doubled(torch.from_dlpack(array * (array > 0)))

'''
