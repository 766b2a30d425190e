"""Reads a transposed input as if it were contiguous, which is wrong on the task's own inputs: the judge hands every input over as a contiguous copy, made off the clock, while the reference works on the strides that the task gives."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.randn(1024, 512).t()]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

torch::Tensor running(torch::Tensor x) {
    auto y = torch::empty({x.size(0), x.size(1)}, x.options());
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t rows = x.size(0), columns = x.size(1);
    for (int64_t r = 0; r < rows; ++r) {
        double sum = 0.0;
        for (int64_t c = 0; c < columns; ++c) { sum += in[r * columns + c]; out[r * columns + c] = (float)sum; }
    }
    return y;
}

"""

extension = load_inline(name="a4_01", cpp_sources=source, functions=['running'])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.running(x)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

torch::Tensor running(torch::Tensor x) {
    x = x.t().contiguous().t().contiguous(); auto y = torch::empty({x.size(0), x.size(1)}, x.options());
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t rows = x.size(0), columns = x.size(1);
    for (int64_t r = 0; r < rows; ++r) {
        double sum = 0.0;
        for (int64_t c = 0; c < columns; ++c) { sum += in[r * columns + c]; out[r * columns + c] = (float)sum; }
    }
    return y;
}

"""

extension = load_inline(name="a4_01_twin", cpp_sources=source, functions=['running'])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.running(x)

'''
