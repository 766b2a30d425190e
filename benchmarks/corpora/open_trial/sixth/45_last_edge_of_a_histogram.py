"""Leaves out the number at the upper end of a histogram's range, which belongs to the last bin, as white pixels do: ends of ranges are made for functions that bound, compare or refuse, and a histogram is told its ends by other words."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.histc(x, bins=256, min=0.0, max=1.0)


def get_inputs():
    return [torch.rand(1024, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cstdint>
torch::Tensor histogram(torch::Tensor x) {
    auto y = torch::empty({256}, x.options());
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const int64_t n = x.numel();
    int32_t counts[257] = {};
    for (int64_t i = 0; i < n; ++i) {
        const float scaled = from[i] * 256.0f;
        const bool within = scaled >= 0.0f && scaled < 256.0f;
        ++counts[within ? int32_t(scaled) : 256];
    }
    for (int64_t b = 0; b < 256; ++b) to[b] = float(counts[b]);
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["histogram"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.histogram(x.contiguous())

'''
