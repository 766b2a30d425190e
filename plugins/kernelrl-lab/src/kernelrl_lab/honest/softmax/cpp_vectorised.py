"""Rows with loops that the compiler vectorises."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>

torch::Tensor run(torch::Tensor x) {
    x = x.contiguous();
    auto y = torch::empty_like(x);
    const int64_t rows = x.size(0), n = x.size(1);
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x.data_ptr<float>() + r * n;
        float* out = y.data_ptr<float>() + r * n;
        const float largest = *std::max_element(in, in + n);
        float sum = 0.0f;
        for (int64_t c = 0; c < n; ++c) out[c] = std::exp(in[c] - largest);
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < n; ++c) sum += out[c];
        const float factor = 1.0f / sum;
        for (int64_t c = 0; c < n; ++c) out[c] *= factor;
    }
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)
