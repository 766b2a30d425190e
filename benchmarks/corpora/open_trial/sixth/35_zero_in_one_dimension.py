"""Divides a sine by its argument without asking whether that is zero: slices of zeros are made of inputs of two dimensions or more, a signal has one, and zero is left out of the numbers that a comparison names."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, t):
        return torch.sinc(0.9 * t) * 0.9


def get_inputs():
    return [8.0 * torch.randn(262144)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor mapped(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) {
        const float angle = 3.14159265358979f * (0.9f * from[i]);
        to[i] = 0.9f * std::sin(angle) / angle;
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["mapped"])


class ModelNew(nn.Module):
    def forward(self, t):
        return extension.mapped(t.contiguous())

'''
