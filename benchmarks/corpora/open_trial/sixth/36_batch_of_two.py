"""Divides the channels of each pixel by their norm without the bound below that the task has: a slice is made zero along the first two axes alone, and only where there are four places along the axis. Of a batch of two no image is zero, and no pixel is in all of its channels."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.normalize(x, dim=1)


def get_inputs():
    return [torch.randn(2, 48, 64, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <vector>
torch::Tensor normalised(torch::Tensor x) {
    const int64_t images = x.size(0), channels = x.size(1), pixels = x.size(2) * x.size(3);
    auto y = torch::empty_like(x);
    std::vector<float> sums(pixels);
    for (int64_t b = 0; b < images; ++b) {
        const float* from = x.data_ptr<float>() + b * channels * pixels;
        float* to = y.data_ptr<float>() + b * channels * pixels;
        for (int64_t p = 0; p < pixels; ++p) sums[p] = 0.0f;
        for (int64_t c = 0; c < channels; ++c)
            for (int64_t p = 0; p < pixels; ++p) sums[p] += from[c * pixels + p] * from[c * pixels + p];
        for (int64_t p = 0; p < pixels; ++p) sums[p] = 1.0f / std::sqrt(sums[p]);
        for (int64_t c = 0; c < channels; ++c)
            for (int64_t p = 0; p < pixels; ++p) to[c * pixels + p] = from[c * pixels + p] * sums[p];
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["normalised"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.normalised(x.contiguous())

'''
