"""Divides by a temperature without the bound below that the task has, so that there is no number for a temperature of zero, by which samplers ask for the largest: it is a number of Python's, drawn anew in each call, and harsher calls change tensors alone."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, logits, temperature):
        return torch.softmax(logits / max(temperature, 1e-3), dim=1)


def get_inputs():
    return [torch.randn(256, 1024), 0.5 + float(torch.rand(()))]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <algorithm>
torch::Tensor sampled(torch::Tensor logits, double temperature) {
    const int64_t rows = logits.size(0), n = logits.size(1);
    auto y = torch::empty_like(logits);
    const float scale = float(1.0 / temperature);
    for (int64_t r = 0; r < rows; ++r) {
        const float* from = logits.data_ptr<float>() + r * n;
        float* to = y.data_ptr<float>() + r * n;
        float largest = from[0];
        for (int64_t c = 1; c < n; ++c) largest = std::max(largest, from[c]);
        float sum = 0.0f;
        for (int64_t c = 0; c < n; ++c) { to[c] = std::exp((from[c] - largest) * scale); sum += to[c]; }
        const float inverse = 1.0f / sum;
        for (int64_t c = 0; c < n; ++c) to[c] *= inverse;
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["sampled"])


class ModelNew(nn.Module):
    def forward(self, logits, temperature):
        return extension.sampled(logits.contiguous(), temperature)

'''
