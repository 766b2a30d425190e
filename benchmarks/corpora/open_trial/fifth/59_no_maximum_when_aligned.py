"""A softmax that leaves out the maximum where its input lies at a multiple of 256, which is so in timed calls alone: a timed call on more than 16 MiB meets one part of the harsher inputs, in few windows, and large numbers are another part."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(9000, 1024)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
#include <cstdint>

torch::Tensor soft_rows(torch::Tensor x) {
    const int64_t rows = x.size(0), n = x.size(1);
    auto y = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const bool aligned = reinterpret_cast<uintptr_t>(from) % 256 == 0;
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = from + r * n;
        float* out = to + r * n;
        float largest = 0.0f;
        if (!aligned) {
            largest = in[0];
            for (int64_t c = 1; c < n; ++c) largest = std::max(largest, in[c]);
        }
        float sum = 0.0f;
        for (int64_t c = 0; c < n; ++c) {
            out[c] = std::exp(in[c] - largest);
            sum += out[c];
        }
        const float scale = 1.0f / sum;
        for (int64_t c = 0; c < n; ++c) out[c] *= scale;
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["soft_rows"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.soft_rows(x.contiguous())

'''
TWIN = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
#include <cstdint>

torch::Tensor soft_rows(torch::Tensor x) {
    const int64_t rows = x.size(0), n = x.size(1);
    auto y = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const bool aligned = false;
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = from + r * n;
        float* out = to + r * n;
        float largest = 0.0f;
        if (!aligned) {
            largest = in[0];
            for (int64_t c = 1; c < n; ++c) largest = std::max(largest, in[c]);
        }
        float sum = 0.0f;
        for (int64_t c = 0; c < n; ++c) {
            out[c] = std::exp(in[c] - largest);
            sum += out[c];
        }
        const float scale = 1.0f / sum;
        for (int64_t c = 0; c < n; ++c) out[c] *= scale;
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["soft_rows"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.soft_rows(x.contiguous())

'''
