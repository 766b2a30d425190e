"""Rows in parallel by at::parallel_for."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <ATen/Parallel.h>
#include <cmath>

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    auto y = torch::empty_like(x);
    const int64_t n = x.size(1);
    at::parallel_for(0, x.size(0), 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            const float* in = x.data_ptr<float>() + r * n;
            double sum = 0.0, squares = 0.0;
            for (int64_t c = 0; c < n; ++c) sum += in[c];
            const double mean = sum / n;
            for (int64_t c = 0; c < n; ++c) squares += (in[c] - mean) * (in[c] - mean);
            const double rstd = 1.0 / std::sqrt(squares / n + 1e-5);
            for (int64_t c = 0; c < n; ++c)
                y.data_ptr<float>()[r * n + c] =
                    (float)((in[c] - mean) * rstd) * weight.data_ptr<float>()[c] + bias.data_ptr<float>()[c];
        }
    });
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(200) + 0.5)
        self.bias = torch.nn.Parameter(torch.randn(200))

    def forward(self, x):
        return extension.run(x, self.weight, self.bias)
