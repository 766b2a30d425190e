"""Reads a row that is broadcast over a view, and so fewer bytes than the view has elements."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>

torch::Tensor repeated(torch::Tensor x, int64_t rows) {
    const int64_t n = x.numel();
    auto y = torch::empty({rows, n}, x.options());
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < n; ++i) out[r * n + i] = std::max(in[i], 0.0f) * 2.0f;
    return y;
}
"""

extension = load_inline(name="lab_repeated", cpp_sources=source, functions=["repeated"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.repeated(x, 512)
