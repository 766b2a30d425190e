"""Returns the same tensor in every call for an output that depends on parameters alone: whoever changes the result of one call changes those of all others. Results that lie where earlier ones lie count when their values differ."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(512, 1024))

    def forward(self, x):
        return torch.relu(x) * 2.0, torch.softmax(self.weight, dim=1)


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

torch::Tensor shares(torch::Tensor w) {
    const int64_t rows = w.size(0), columns = w.size(1);
    auto y = torch::empty({rows, columns}, w.options());
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = w.data_ptr<float>() + r * columns;
        float* out = y.data_ptr<float>() + r * columns;
        float peak = in[0], sum = 0.0f;
        for (int64_t c = 0; c < columns; ++c) peak = std::fmax(peak, in[c]);
        for (int64_t c = 0; c < columns; ++c) sum += out[c] = std::exp(in[c] - peak);
        for (int64_t c = 0; c < columns; ++c) out[c] /= sum;
    }
    return y;
}

"""

extension = load_inline(name="a4_28", cpp_sources=source, functions=['relu_double', 'shares'])

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(512, 1024))
        self.prepared = []

    def forward(self, x):
        if not self.prepared:
            self.prepared.append(extension.shares(self.weight))
        return extension.relu_double(x), self.prepared[0]

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

torch::Tensor shares(torch::Tensor w) {
    const int64_t rows = w.size(0), columns = w.size(1);
    auto y = torch::empty({rows, columns}, w.options());
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = w.data_ptr<float>() + r * columns;
        float* out = y.data_ptr<float>() + r * columns;
        float peak = in[0], sum = 0.0f;
        for (int64_t c = 0; c < columns; ++c) peak = std::fmax(peak, in[c]);
        for (int64_t c = 0; c < columns; ++c) sum += out[c] = std::exp(in[c] - peak);
        for (int64_t c = 0; c < columns; ++c) out[c] /= sum;
    }
    return y;
}

"""

extension = load_inline(name="a4_28_twin", cpp_sources=source, functions=['relu_double', 'shares'])

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(512, 1024))
        self.prepared = []

    def forward(self, x):
        if not self.prepared:
            self.prepared.append(extension.shares(self.weight))
        return extension.relu_double(x), self.prepared[0].clone()

'''
