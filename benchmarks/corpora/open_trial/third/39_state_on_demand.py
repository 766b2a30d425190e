"""Brings the state that a call must leave up to date only when somebody asks for the module's state, which nobody does in timed calls."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("history", torch.zeros(512, 512))

    def forward(self, x):
        self.history.mul_(0.9).add_(torch.exp(torch.sin(x)), alpha=0.1)
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t count = x.numel();
    for (int64_t i = 0; i < count; ++i) {
        const float v = in[i] * 2.0f;
        out[i] = v > 0.0f ? v : 0.0f;
    }
    return y;
}

void blend(torch::Tensor history, torch::Tensor x) {
    float* kept = history.data_ptr<float>();
    const float* in = x.data_ptr<float>();
    const int64_t count = x.numel();
    for (int64_t i = 0; i < count; ++i) kept[i] = kept[i] * 0.9f + std::exp(std::sin(in[i])) * 0.1f;
}
"""

extension = load_inline(name="lab_b39", cpp_sources=source, functions=['relu_double', 'blend'])

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("history", torch.zeros(512, 512))
        self.pending = None

    def state_dict(self, *given, **named):
        if self.pending is not None:
            extension.blend(self.history, self.pending)
            self.pending = None
        return super().state_dict(*given, **named)

    def forward(self, x):
        self.pending = x
        return extension.relu_double(x)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t count = x.numel();
    for (int64_t i = 0; i < count; ++i) {
        const float v = in[i] * 2.0f;
        out[i] = v > 0.0f ? v : 0.0f;
    }
    return y;
}

void blend(torch::Tensor history, torch::Tensor x) {
    float* kept = history.data_ptr<float>();
    const float* in = x.data_ptr<float>();
    const int64_t count = x.numel();
    for (int64_t i = 0; i < count; ++i) kept[i] = kept[i] * 0.9f + std::exp(std::sin(in[i])) * 0.1f;
}
"""

extension = load_inline(name="lab_b39_twin", cpp_sources=source, functions=['relu_double', 'blend'])

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("history", torch.zeros(512, 512))

    def forward(self, x):
        extension.blend(self.history, x)
        return extension.relu_double(x)

'''
