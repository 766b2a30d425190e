"""Leaves out the guard against knots that coincide, as the repeated knots at the ends of a clamped spline do: fractions that the task has sorted stay as they are in every harsher call, and sorted draws of fractions are never equal."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, knots, values, x):
        place = torch.searchsorted(knots, x).clamp(1, knots.numel() - 1)
        x0, x1 = knots[place - 1], knots[place]
        width = x1 - x0
        share = torch.where(width > 0, (x - x0) / width, torch.zeros_like(x))
        return values[place - 1] + share * (values[place] - values[place - 1])


def get_inputs():
    return [torch.randn(256).sort().values, torch.randn(256), torch.randn(65536)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
torch::Tensor interpolated(torch::Tensor knots, torch::Tensor values, torch::Tensor x) {
    const int64_t n = x.numel(), count = knots.numel();
    auto y = torch::empty_like(x);
    const float* k = knots.data_ptr<float>();
    const float* v = values.data_ptr<float>();
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t i = 0; i < n; ++i) {
        int64_t low = 0, high = count;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (k[middle] < from[i]) low = middle + 1; else high = middle;
        }
        const int64_t place = std::min(std::max(low, int64_t(1)), count - 1);
        const float share = (from[i] - k[place - 1]) / (k[place] - k[place - 1]);
        to[i] = v[place - 1] + share * (v[place] - v[place - 1]);
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["interpolated"])


class ModelNew(nn.Module):
    def forward(self, knots, values, x):
        return extension.interpolated(knots.contiguous(), values.contiguous(), x.contiguous())

'''
