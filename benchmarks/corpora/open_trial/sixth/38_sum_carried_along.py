"""Carries the sum of a window along, adding the number that comes and taking off the one that goes, where the task sums each window: behind one number of 1e9 all the rest of the row is lost, and behind one that is not finite it is no number. Spikes end at 65,536, and what rounding costs of the largest element of a row is free anywhere in that row."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.pool = nn.AvgPool1d(width, stride=1)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.randn(8, 16, 4096)]


def get_init_inputs():
    return [63]

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
torch::Tensor averaged(torch::Tensor x) {
    const int64_t lines = x.size(0) * x.size(1), n = x.size(2), width = 63, count = n - width + 1;
    auto y = torch::empty({x.size(0), x.size(1), count}, x.options());
    for (int64_t r = 0; r < lines; ++r) {
        const float* from = x.data_ptr<float>() + r * n;
        float* to = y.data_ptr<float>() + r * count;
        float sum = 0.0f;
        for (int64_t c = 0; c < width; ++c) sum += from[c];
        to[0] = sum / 63.0f;
        for (int64_t c = 1; c < count; ++c) {
            sum += from[c + width - 1] - from[c - 1];
            to[c] = sum / 63.0f;
        }
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["averaged"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return extension.averaged(x.contiguous())

'''
TWIN = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
torch::Tensor averaged(torch::Tensor x) {
    const int64_t lines = x.size(0) * x.size(1), n = x.size(2), width = 63, count = n - width + 1;
    auto y = torch::empty({x.size(0), x.size(1), count}, x.options());
    for (int64_t r = 0; r < lines; ++r) {
        const float* from = x.data_ptr<float>() + r * n;
        float* to = y.data_ptr<float>() + r * count;
        for (int64_t c = 0; c < count; ++c) to[c] = 0.0f;
        for (int64_t k = 0; k < width; ++k)
            for (int64_t c = 0; c < count; ++c) to[c] += from[c + k];
        for (int64_t c = 0; c < count; ++c) to[c] /= 63.0f;
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["averaged"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()

    def forward(self, x):
        return extension.averaged(x.contiguous())

'''
