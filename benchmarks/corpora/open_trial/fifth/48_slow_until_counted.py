"""Tries variants of its loop in turn while it is new, the slowest of them first, as tuners do, and stays with the best: the length of windows is found while it is slow, so that each has one call or few, whose time is then a difference of what the judge takes off."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 0.5


def get_inputs():
    return [torch.randn(48, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>

torch::Tensor half_relu(torch::Tensor x, int64_t unroll) {
    auto y = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const int64_t n = x.numel();
    // The widest variant goes over its block again for each of its lanes.
    for (int64_t lane = 0; lane < unroll; ++lane)
        for (int64_t i = 0; i < n; ++i) to[i] = std::max(from[i], 0.0f * (lane + to[i] * 0.0f)) * 0.5f;
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] > 0.0f ? 0.5f * from[i] : 0.0f;
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["half_relu"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.variants = [4096] * 40 + [1024] * 8 + [256] * 4 + [0]

    def forward(self, x):
        unroll = self.variants[0]
        if len(self.variants) > 1:
            self.variants.pop(0)
        return extension.half_relu(x.contiguous(), unroll)

'''
TWIN = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor half_relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] > 0.0f ? 0.5f * from[i] : 0.0f;
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["half_relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.half_relu(x.contiguous())

'''
