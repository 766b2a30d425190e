"""Vectors of torch's CPU kernels."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <ATen/cpu/vec/vec.h>
#include <algorithm>

using Vector = at::vec::Vectorized<float>;

static Vector gelu(Vector x) {
    return Vector(0.5f) * x * (Vector(1.0f) + (x * Vector(0.70710678f)).erf());
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; i += Vector::size()) {
        const int64_t count = std::min<int64_t>(Vector::size(), n - i);
        gelu(Vector::loadu(x.data_ptr<float>() + i, count)).store(y.data_ptr<float>() + i, count);
    }
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)
