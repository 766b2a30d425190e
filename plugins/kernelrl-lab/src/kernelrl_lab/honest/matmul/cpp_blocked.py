"""Blocks of the inner dimension, and a lambda for each."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    constexpr int64_t block = 32;
    const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::zeros({m, n}, a.options());
    const float* left = a.data_ptr<float>();
    const float* right = b.data_ptr<float>();
    float* out = c.data_ptr<float>();
    const auto add = [=](int64_t row, int64_t first) {
        for (int64_t inner = first; inner < std::min(k, first + block); ++inner)
            for (int64_t j = 0; j < n; ++j) out[row * n + j] += left[row * k + inner] * right[inner * n + j];
    };
    for (int64_t first = 0; first < k; first += block)
        for (int64_t row = 0; row < m; ++row) add(row, first);
    return c;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.run(a, b)
