"""A kernel that replaces NaN and infinities."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor replaced(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = std::isnan(from[i]) ? 0.0f : std::isinf(from[i]) ? (from[i] > 0.0f ? 2e4f : -2e4f) : from[i] * 2.0f;
    return out;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["replaced"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.replaced(x.contiguous())
