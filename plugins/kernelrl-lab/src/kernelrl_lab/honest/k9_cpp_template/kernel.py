"""Builds a source into which a computed number is written."""

import torch
from torch.utils.cpp_extension import load_inline

template = """
#include <torch/extension.h>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * FACTOR : 0.0f;
    return y;
}

void relu_double_into(torch::Tensor x, torch::Tensor y) {
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * FACTOR : 0.0f;
}

torch::Tensor slow_relu_double(torch::Tensor x, int64_t rounds) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    volatile float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t round = 0; round < rounds; ++round)
        for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * FACTOR : 0.0f;
    return y;
}
"""
text = template.replace("FACTOR", f"{sum([1, 1]):.1f}f")

extension = load_inline(name="lab_hidden_template", cpp_sources=text, functions=["relu_double"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)
